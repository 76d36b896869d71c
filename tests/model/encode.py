"""A query as a query string: brackets where they can express it, else JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

NESTED = ("filter", "deep", "alias", "aggregate")


def query_string(query: Mapping[str, Any], *, brackets: bool) -> str:
    """Return the query string of a GET; what brackets cannot express (null,
    nothing in a list) is written as JSON.
    """
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        if name not in NESTED:
            pairs.append((name, ",".join(value) if isinstance(value, list) else str(value)))
        elif brackets and _sayable(value):
            pairs += _pairs(name, value)
        else:
            pairs.append((name, json.dumps(value)))
    return urlencode(pairs)


def _sayable(value: Any) -> bool:
    if isinstance(value, dict | list):
        return bool(value) and all(
            map(_sayable, value.values() if isinstance(value, dict) else value)
        )
    return value is not None


def _pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _pairs(f"{name}[{key}]", inner)
        case list():
            for number, inner in enumerate(value):
                yield from _pairs(f"{name}[{number}]", inner)
        case bool():
            yield name, str(value).lower()
        case _:
            yield name, str(value)
