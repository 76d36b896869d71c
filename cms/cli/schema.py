"""`cms schema snapshot`: the structure of the running service as a file."""

from __future__ import annotations

from pathlib import PurePath

import click

from cms.cli.service import Service


def write_snapshot(service: Service, file: str) -> None:
    """Write the document as JSON into a file of that suffix, else as YAML; `-` is the output."""
    is_json = PurePath(file).suffix.lower() == ".json"
    chunks = service.download("/schema/snapshot", {"export": "json" if is_json else "yaml"})
    # Whole before the file is opened: a refusal must leave the former snapshot as it is.
    content = b"".join(chunks)
    with click.open_file(file, "wb") as output:
        output.write(content)
