"""Names of statements for traces: what a statement does, without its text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial

from cms.caches import bounded_cache
from cms.database.statements import all_statements

_IDENTIFIER = r'"(?:[^"]|"")+"'
_TABLE = rf"{_IDENTIFIER}(?:\.{_IDENTIFIER})?"
_WRITE = re.compile(rf"\b(INSERT INTO|UPDATE|DELETE FROM) ({_TABLE})")
_READ = re.compile(rf"\bFROM ({_TABLE})")

_MAX_BYTES = 2**21
_names = bounded_cache(_MAX_BYTES)


def name_of(text: str) -> str:
    """Return the name of a fixed statement; of any other its verb and its first table."""
    name: str = _names.setdefault_with(text, partial(_name_of, text))
    return name


def _name_of(text: str) -> str:
    fixed_name = _fixed_names().get(text)
    if fixed_name is not None:
        return fixed_name
    # First, because a write may read other tables as well.
    if write := _WRITE.search(text):
        return f"{write[1].partition(' ')[0]} {_plain(write[2])}"
    verb = text.split(maxsplit=1)[0].upper()
    # The common frame of reads names its one table without quotes.
    table = _READ.search(text)
    if table is None:
        return verb
    return f"{verb} {_plain(table[1])}"


def _plain(table: str) -> str:
    return table.replace('"', "")


@cache
def _fixed_names() -> Mapping[str, str]:
    return {text: name for name, text in all_statements().items()}
