"""Parameters of statements as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cms.query.sql.arguments import array


def parameter_texts(values: Sequence[object]) -> list[Any]:
    """Return the parameters of a statement as PostgreSQL's input functions read them."""
    # Nearly all are texts: they are encoded here, without a call for each.
    return [value.encode() if type(value) is str else _text(value) for value in values]


def _text(value: object) -> bytes | None:
    """Return one parameter; every statement casts its own."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        # Before int: to Python they are numbers, too.
        case True:
            return b"true"
        case False:
            return b"false"
        case int():
            return b"%d" % value
        case bytes():
            return b"\\x" + value.hex().encode()
        case list() | tuple():
            # The elements as text, too: the statement casts the whole array.
            texts = [None if item is None else str(item) for item in value]
            return array(texts).encode()
        case _:
            return str(value).encode()
