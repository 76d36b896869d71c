"""The fixed statements of sql/queries, by name: the only SQL that is not compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

# A name, and below it at least one line that says what the statement is for.
HEADER = re.compile(r"^-- name: ([a-z][a-z0-9_]*)\n((?:--.*\n)+)", re.MULTILINE)
LIKELY_HEADER = re.compile(r"^\s*--\s*name\s*:.*", re.MULTILINE | re.IGNORECASE)


class _NamedStatement(NamedTuple):
    name: str
    text: str


def sql_folder() -> Path:
    """Return the folder of the SQL files: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "sql"
    if inside.is_dir():
        return inside
    return package.parent / "sql"


def statement(name: str) -> str:
    """Return the text of a statement, with `$1 …` as parameters; raises LookupError."""
    try:
        return all_statements()[name]
    except KeyError:
        raise LookupError(f"No statement in sql/queries is named {name!r}") from None


@cache
def all_statements() -> Mapping[str, str]:
    """Return the texts of all statements by their names."""
    return read_statements(sql_folder() / "queries")


def read_statements(folder: Path) -> Mapping[str, str]:
    """Return the statements of a folder's *.sql files by name; raises ValueError for a bad file."""
    statements: dict[str, str] = {}
    for path in sorted(folder.glob("*.sql")):
        for name, text in _split(path.read_text(encoding="utf-8"), path.name):
            if name in statements:
                raise ValueError(f"{path.name}: there is another statement named {name!r}")
            statements[name] = text
    return MappingProxyType(statements)


def _split(source: str, file: str) -> Iterator[_NamedStatement]:
    # The pattern has two groups, so the pieces are name, description, text, name, and so on.
    before, *pieces = HEADER.split(source)
    # Not the names: the pattern has checked their form.
    for piece in (before, *pieces[1::3], *pieces[2::3]):
        _refuse_stray(piece, file)
    for line in before.splitlines():
        if line.strip() and not line.startswith("--"):
            raise ValueError(f"{file}: there is text above the first '-- name: word'")
    for name, text in zip(pieces[0::3], pieces[2::3], strict=True):
        if not text.strip():
            raise ValueError(f"{file}: the statement {name!r} is empty")
        yield _NamedStatement(name, text.strip())


def _refuse_stray(text: str, file: str) -> None:
    """Refuse a misspelt header, which would become a comment of the statement above it."""
    if stray := LIKELY_HEADER.search(text):
        raise ValueError(
            f"{file}: {stray[0].strip()!r} is no '-- name: word' above a line of description"
        )
