"""`cms types`: the types of the running service's collections, for programs of clients."""

from __future__ import annotations

import click

from cms.cli.service import Service


def write_types(service: Service, file: str, *, language: str) -> None:
    """Write the types in a language into a file; `-` is the output."""
    # Whole before the file is opened: a refusal must leave the former types as they are.
    content = b"".join(service.download("/server/specs/types", {"language": language}))
    with click.open_file(file, "wb") as output:
        output.write(content)
