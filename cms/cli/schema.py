"""`cms schema`: the structure of the running service as a file, and changes of it by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath

import click

from cms import jsontext
from cms.cli.schema_diff import diff_lines
from cms.cli.service import Service
from cms.cli.session import say
from cms.schema_sync.document_texts import FILE_FORMATS

EXIT_FAULT = 2
"""The exit status where there is no answer: 1 says that there is a difference."""


class _Fault(click.ClickException):
    exit_code = EXIT_FAULT


def write_snapshot(service: Service, file: str, *, include: str) -> None:
    """Write the document as JSON into a file of that suffix, else as YAML; `-` is the output."""
    params = {"export": _format_of(file), "include": include}
    chunks = service.download("/schema/snapshot", params)
    # Whole before the file is opened: a refusal must leave the former snapshot as it is.
    content = b"".join(chunks)
    with click.open_file(file, "wb") as output:
        output.write(content)


@contextmanager
def faults_with_own_status() -> Iterator[None]:
    """End the command with `EXIT_FAULT` where something goes wrong."""
    try:
        yield
    except click.ClickException as error:
        raise _Fault(error.message) from None


def _print_changes(diff: Mapping[str, object] | None) -> None:
    """Print the changes, and before them what of a snapshot of Directus is left out."""
    for entry in (diff or {}).get("ignored", ()):  # type: ignore[attr-defined]
        say(f"  ignored: {entry['field']}: {entry['reason']}")
    for line in diff_lines(diff):
        say(line)


def print_diff(service: Service, file: str) -> bool:
    """Print the changes from the service to a file, and return whether there are any."""
    diff = _diff(service, file)
    _print_changes(diff)
    return diff is not None


def apply_file(service: Service, file: str, *, allow_destructive: bool) -> None:
    """Make the changes that `print_diff` prints, all or none."""
    diff = _diff(service, file)
    if diff is None:
        say("There is no difference.")
        return
    _print_changes(diff)
    # With its `hash`: the printed changes are applied only while they still are the difference.
    body = jsontext.dumps({**diff, "allow_destructive": allow_destructive})
    service.post("/schema/apply", body, media_type="application/json")
    say("Applied.")


def _diff(service: Service, file: str) -> Mapping[str, object] | None:
    with click.open_file(file, "rb") as snapshot:
        content = snapshot.read()
    media_type = FILE_FORMATS[_format_of(file)].media_type
    return service.post("/schema/diff", content, media_type=media_type)


def _format_of(file: str) -> str:
    return "json" if PurePath(file).suffix.lower() == ".json" else "yaml"
