"""Query strings: brackets as nested values, and the shape that is left without operands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from cms.errors import abbreviated, capitalized, invalid_query
from cms.jsontext import NUL_REFUSAL
from cms.query.language.limits import MAX_BRACKETS, MAX_QUERY_PARAMETERS
from cms.query.language.operators import OPERATORS, OperandKind

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


# Shapes: requests that differ in operands only have one, which is parsed once for all of them


_OPERAND_MARKER = "\udfff"
"""A character that no query string holds: half of a surrogate pair."""

# Clients send brackets raw or percent-encoded, in either case.
_OPENS = r"(?:\[|%5[Bb])"
_CLOSES = r"(?:\]|%5[Dd])"
# A key with a percent sign or a plus could decode to anything, so such a parameter keeps its
# operand and is parsed with it.
_KEY = r"[^\[\]&=%+]*"
# Operands of these kinds reach the statement as they are. The parser looks into those of others: it
# splits lists and reads flags.
_NAMES = "|".join(
    name
    for name, operator in OPERATORS.items()
    if operator.operand_kind in (OperandKind.ONE, OperandKind.PATTERN)
)
_LAST = f"(?:{_NAMES}){_CLOSES}"
# The groups of `filter[price][_gt]=5` are `filter[price][_gt]=` and `5`. (?<![^&]) is the start of
# a parameter, (?!_LAST) keeps an operator out of the middle, and (?!\$|%24) leaves variables to the
# parser.
_OPERAND = re.compile(
    rf"(?<![^&])({_KEY}(?:{_OPENS}(?!{_LAST}){_KEY}{_CLOSES})+{_OPENS}{_LAST}=)(?!\$|%24)([^&]*)"
)


class JsonText(str):
    """A text of a query string that is read as JSON where it is JSON: `5`, `true`, `"5"`, `red`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class OperandGap:
    """Stands where an operand was taken out; with `is_json` it comes back as `JsonText`.

    It is neither text nor list: code that looked at the value would refuse it.
    """

    index: int
    is_json: bool = False

    def as_json(self) -> OperandGap:
        """Return the gap of an operand that may be JSON."""
        return replace(self, is_json=True)


class QueryShape(NamedTuple):
    """A query string with gaps, and the operands that were taken out, decoded."""

    text: str
    operands: tuple[str, ...] = ()

    def params(self) -> dict[str, object]:
        """Return the parameters as nested dicts, with gaps for operands."""
        # The n-th marker gets the n-th operand. Both sides run through the query string from left
        # to right; the tree may meet the gaps in another order, and so each knows its index.
        indexes = count()
        pairs: list[tuple[str, object]] = []
        for name, value in decoded_pairs(self.text):
            if value == _OPERAND_MARKER:
                pairs.append((name, OperandGap(next(indexes))))
            else:
                pairs.append((name, value))
        return merge_pairs(pairs)

    def fill_gaps(self, literals: tuple[object, ...]) -> tuple[object, ...]:
        """Return the literals of the parsed shape with the operands in their gaps."""
        if not self.operands:
            return literals
        return tuple(map(self._filled, literals))

    def _filled(self, literal: object) -> object:
        if isinstance(literal, OperandGap):
            operand = self.operands[literal.index]
            return JsonText(operand) if literal.is_json else operand
        # A key of several columns whose values are several parameters of one name.
        if isinstance(literal, tuple):
            return tuple(map(self._filled, literal))
        return literal


def shape_of(query_string: str) -> QueryShape:
    """Return a query string without the operands that become literals as they are.

    These are operands of operators with one value; variables such as `$NOW` stay.
    """
    # A string that the parser refuses, or decodes in a way of its own, is left to it as a whole.
    # Searches for a text take a tenth of the time of one for a pattern.
    has_brackets = "[" in query_string or "%5B" in query_string or "%5b" in query_string
    holds_zero = "\0" in query_string or "%00" in query_string
    if not has_brackets or holds_zero or not query_string.isascii():
        return QueryShape(query_string)
    # What stands before an operand, the two groups of the operand, and so on.
    parts = _OPERAND.split(query_string)
    operands = tuple(map(unquote_plus, parts[2::3]))
    parts[2::3] = [_OPERAND_MARKER] * len(operands)
    return QueryShape("".join(parts), operands)
