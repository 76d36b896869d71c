"""Parameters of statements as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cms.query.sql.arrays import array


def parameter_texts(values: Sequence[object]) -> list[Any]:
    """Return the parameters of a statement as PostgreSQL's input functions read them."""
    texts: list[Any] = []
    # Nearly all are texts, numbers or NULL: they are written here, without a call for each.
    for value in values:
        if type(value) is str:
            texts.append(value.encode())
        elif value is None:
            texts.append(None)
        elif type(value) is int:
            texts.append(b"%d" % value)
        else:
            texts.append(_text(value))
    return texts


def _text(value: object) -> bytes:
    """Return one parameter; every statement casts its own."""
    match value:
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
