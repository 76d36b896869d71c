"""`cms schema`: the structure of the running service as a file, and changes of it by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

import click

from cms import jsontext
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


def _print_changes(diff: Mapping[str, Any]) -> None:
    """Print the changes, and before them what of a snapshot of Directus is left out."""
    for entry in diff.get("ignored", ()):
        say(f"  ignored: {entry['field']}: {entry['reason']}")
    for line in diff_lines(diff):
        say(line)


def print_diff(service: Service, file: str) -> bool:
    """Print the changes from the service to a file, and return whether there are any."""
    diff = _diff(service, file)
    _print_changes(diff)
    return bool(diff)


def apply_file(service: Service, file: str, *, allow_destructive: bool) -> None:
    """Make the changes that `print_diff` prints, all or none."""
    diff = _diff(service, file)
    if not diff:
        say("There is no difference.")
        return
    _print_changes(diff)
    # With its `hash`: the printed changes are applied only while they still are the difference.
    body = jsontext.dumps({**diff, "allow_destructive": allow_destructive})
    service.post("/schema/apply", body, media_type="application/json")
    say("Applied.")


def _diff(service: Service, file: str) -> Mapping[str, Any]:
    """Return the changes from the service to a file, empty where there are none."""
    with click.open_file(file, "rb") as snapshot:
        content = snapshot.read()
    media_type = FILE_FORMATS[_format_of(file)].media_type
    return service.post("/schema/diff", content, media_type=media_type)


def _format_of(file: str) -> str:
    return "json" if PurePath(file).suffix.lower() == ".json" else "yaml"


# A diff as lines for people

# By the kinds of changes: N is new, D is deleted. An edit (E) shows its values instead.
_SIGNS = {"N": "+", "D": "-"}
_MAX_VALUE_LENGTH = 60

DiffPart = Mapping[str, Any]


def diff_lines(diff: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each record, and one for each of its changed values below it."""
    for section, entries in diff.get("diff", {}).items():
        for entry in entries:
            yield from _entry_lines(section.removesuffix("s"), entry)


def _entry_lines(noun: str, entry: DiffPart) -> Iterator[str]:
    changes: Sequence[DiffPart] = entry["diff"]
    sign = "~"
    # A record that is new or deleted has one change, which has no path.
    if changes and "path" not in changes[0]:
        sign = _SIGNS[changes[0]["kind"]]
    yield f"{sign} {noun} {_title(entry)}".rstrip()
    if sign == "~":
        for change in changes:
            yield f"    {_change_line(change)}"


def _title(entry: DiffPart) -> str:
    if "role" in entry:
        return f"{entry['action']} {entry['collection']} for {entry['role'] or 'everybody'}"
    title = ".".join(entry[key] for key in ("collection", "field", "name") if key in entry)
    if "renamed_from" in entry:
        title += f" (renamed from {entry['renamed_from']})"
    if entry.get("related_collection"):
        title += f" → {entry['related_collection']}"
    return title


def _change_line(change: DiffPart) -> str:
    path = ".".join(change["path"])
    if change["kind"] == "N":
        return f"{path}: {_shorten(change['rhs'])}"
    if change["kind"] == "D":
        return f"{path}: {_shorten(change['lhs'])} is gone"
    return f"{path}: {_shorten(change['lhs'])} → {_shorten(change['rhs'])}"


def _shorten(value: object) -> str:
    text = jsontext.dumps(value).decode()
    if len(text) > _MAX_VALUE_LENGTH:
        return text[:_MAX_VALUE_LENGTH] + "…"
    return text
