"""Filters and search, row by row."""

from __future__ import annotations

import unicodedata
from decimal import Decimal, InvalidOperation
from typing import Any

from tests.model.shape import Collection, Link, Row, Tables
from tests.model.values import Typed, output, rank, read, value_of

Json = dict[str, Any]

GROUPS = {"_and": all, "_or": any}


def holds(tables: Tables, collection: Collection, row: Row, rule: Json) -> bool:
    """Whether a row fulfils a filter: several keys at one level mean `_and`."""
    return all(_entry(tables, collection, row, entry) for entry in rule.items())


def _entry(tables: Tables, collection: Collection, row: Row, entry: tuple[str, Any]) -> bool:
    name, inner = entry
    if name in GROUPS:
        return GROUPS[name](holds(tables, collection, row, item) for item in inner)
    if not isinstance(inner, dict):
        inner = {"_eq": inner}
    link = collection.links.get(name)
    if link and link.many:
        return _to_many(tables, row, link, inner)
    if link:
        return _to_one(
            tables,
            (collection.columns[link.near], row[link.near]),
            tables.related(row, link),
            (link, inner),
        )
    return _own(tables, value_of(tables, collection, row, name), inner)


def _to_many(tables: Tables, row: Row, link: Link, inner: Json) -> bool:
    """At least one item (`_some`, the default), or not one (`_none`)."""
    rule: Json = inner["_some"] if "_some" in inner else inner.get("_none") or inner
    matches = any(
        holds(tables, tables.shape[link.target], item, rule) for item in tables.related(row, link)
    )
    return not matches if "_none" in inner else matches


def _to_one(tables: Tables, key: Typed, items: list[Row], pair: tuple[Link, Json]) -> bool:
    """Operators speak of the key, everything else of the item; there is at most one."""
    link, inner = pair

    def one(name: str, operand: Any) -> bool:
        if name in GROUPS:
            return GROUPS[name](_to_one(tables, key, items, (link, item)) for item in operand)
        if name.startswith("_"):
            return test(tables, key, name, operand)
        return any(
            holds(tables, tables.shape[link.target], item, {name: operand}) for item in items
        )

    return all(one(*entry) for entry in inner.items())


def _own(tables: Tables, typed: Typed, inner: Json) -> bool:
    def one(name: str, operand: Any) -> bool:
        if name in GROUPS:
            return GROUPS[name](_own(tables, typed, item) for item in operand)
        return test(tables, typed, name, operand)

    return all(one(*entry) for entry in inner.items())


# Operators


def test(tables: Tables, typed: Typed, operator: str, operand: Any) -> bool:
    """Whether a value passes an operator; a null passes only those that
    ask for it, and `_nin` of nothing.
    """
    _, value = typed
    if operand is None:
        operator = {"_eq": "_null", "_neq": "_nnull"}[operator]
        operand = True
    if operator in ("_null", "_nnull", "_empty", "_nempty"):
        wants_empty = (operator in ("_null", "_empty")) == (operand in (True, "true", "1", ""))
        return wants_empty == (value is None or (operator.endswith("empty") and _is_empty(value)))
    if operator == "_nin" and not operand:
        return True
    return value is not None and _compare(tables, typed, operator, operand)


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | dict) and not value


def _compare(tables: Tables, typed: Typed, operator: str, operand: Any) -> bool:
    kind, value = typed
    if operator in ("_in", "_nin"):
        return any(value == read(kind, item) for item in operand) == (operator == "_in")
    if operator in ("_between", "_nbetween"):
        low, high = (rank(tables, kind, read(kind, item)) for item in operand)
        return bool(low <= rank(tables, kind, value) <= high) == (operator == "_between")
    if operator in ("_lt", "_lte", "_gt", "_gte"):
        return _ordered(
            operator, rank(tables, kind, value), rank(tables, kind, read(kind, operand))
        )
    return _matches(operator, value, read(kind, operand))


def _ordered(operator: str, left: Any, right: Any) -> bool:
    equals = operator.endswith("e") and left == right
    return equals or bool(left < right if operator.startswith("_lt") else left > right)


_PLAIN = ("eq", "contains", "starts_with", "ends_with")


def _matches(operator: str, value: Any, operand: Any) -> bool:
    """`_nicontains` is `contains`, blind to case and negated."""
    name = next(matches for matches in _PLAIN if operator.endswith(matches))
    modes = operator.removesuffix(name)
    if "i" in modes:
        value = value.lower()
        operand = operand.lower()
    match name:
        case "contains":
            matches: bool = operand in value
        case "starts_with":
            matches = value.startswith(operand)
        case "ends_with":
            matches = value.endswith(operand)
        case _:
            matches = value == operand
    return matches != ("n" in modes)


# Search


def is_search_result(tables: Tables, collection: Collection, row: Row, text: str) -> bool:
    """Whether every word is part of a text field, or equals a number or a uuid."""
    return all(
        any(
            _value_contains(tables, (kind, row[name]), word)
            for name, kind in collection.columns.items()
        )
        for word in text.split()
    )


def _value_contains(tables: Tables, typed: Typed, word: str) -> bool:
    kind, value = typed
    if value is None:
        return False
    match kind:
        case "string":
            return _folded(tables, word) in _folded(tables, value)
        case "integer" | "decimal":
            return bool(_number(word) == value)
        case "uuid":
            return word.lower() == str(output(kind, value))
        case _:
            return False


def _folded(tables: Tables, text: str) -> str:
    if not tables.accents:
        text = "".join(
            character
            for character in unicodedata.normalize("NFD", text)
            if not unicodedata.combining(character)
        )
    return text.lower()


def _number(word: str) -> Decimal | None:
    try:
        return Decimal(word)
    except InvalidOperation:
        return None
