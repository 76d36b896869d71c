"""Query strings with brackets, `filter[price][_gt]=5`, as nested values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl

from cms.errors import abbreviated, capitalized, invalid_query
from cms.jsontext import NUL_REFUSAL
from cms.query.language.limits import MAX_BRACKETS, MAX_QUERY_PARAMETERS

# A name, then any number of bracketed keys, which may be empty: `filter[_and][0][title][_eq]`,
# `fields[]`. It does not match `a[b` or `a]b`.
_FORM = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)")


class Brackets(dict[str, object]):
    """The nested values of a name with brackets; all of them are texts, even numbers."""


def nested_params(query_string: str) -> dict[str, object]:
    """Return the parameters of a query string as nested dicts."""
    return merge_pairs(decoded_pairs(query_string))


def decoded_pairs(query_string: str) -> list[tuple[str, str]]:
    """Return the names and values of a query string, decoded.

    The text is as WSGI gives it: a character that was not percent-encoded stands for one byte of
    its UTF-8.
    """
    try:
        pairs = parse_qsl(
            _utf8(query_string), keep_blank_values=True, max_num_fields=MAX_QUERY_PARAMETERS
        )
    except ValueError:
        raise invalid_query(f"It has more than {MAX_QUERY_PARAMETERS} parameters") from None
    for name, value in pairs:
        # PostgreSQL's texts cannot hold it, and would fail in the middle of a statement.
        if "\0" in name or "\0" in value:
            parameter = abbreviated(name.partition("[")[0])
            raise invalid_query(capitalized(NUL_REFUSAL), parameter=parameter)
    return pairs


def merge_pairs(decoded_pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Return names with brackets and their values as nested dicts.

    `a[]` and a repeated name make a list. A name whose brackets do not match is taken as it is.
    Lists by number (`_and[0]`) stay dicts with digits as keys, until `as_list` turns them.
    """
    root: dict[str, object] = {}
    for name, value in decoded_pairs:
        keys = [name]
        if matched := _FORM.fullmatch(name):
            keys = [matched[1], *re.findall(r"\[([^\[\]]*)\]", matched[2])]
        if len(keys) > MAX_BRACKETS:
            raise invalid_query(f"It nests more than {MAX_BRACKETS} brackets", parameter=keys[0])
        _put(root, keys, value)
    return root


def as_list(value: object) -> object:
    """Return a dict with the keys 0, 1, 2 … as a list, and anything else as it is."""
    if not isinstance(value, dict) or not value:
        return value
    for key in value:
        if not (key.isdecimal() and key.isascii()):
            return value
    return [value[key] for key in sorted(value, key=_number)]


def _utf8(query_string: str) -> str:
    if query_string.isascii():
        return query_string
    try:
        # WSGI hands over bytes as latin-1 text (PEP 3333). Bytes that are no UTF-8 stay latin-1.
        return query_string.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return query_string


def _number(digits: str) -> tuple[int, str]:
    # A number may have any number of digits, and int() refuses very long ones.
    return len(digits), digits


def _put(root: dict[str, object], keys: list[str], value: object) -> None:
    # A plain value and `a[]` may come under one name, in any order: the second of two values makes
    # a list of both.
    appends = len(keys) > 1 and not keys[-1]  # `a[]`
    if appends:
        keys = keys[:-1]
    *outer, last = keys
    group = root
    for key in outer:
        inner = group.setdefault(key, Brackets())
        if not isinstance(inner, dict):
            raise invalid_query(f'"{key}" is both a value and a group', parameter=keys[0])
        group = inner
    earlier = group.get(last)
    if earlier is None and appends:
        group[last] = [value]
    elif earlier is None:
        group[last] = value
    elif isinstance(earlier, dict):
        raise invalid_query("A name is both a value and a group", parameter=keys[0])
    elif isinstance(earlier, list):
        earlier.append(value)
    else:
        group[last] = [earlier, value]
