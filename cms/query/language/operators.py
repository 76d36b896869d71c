"""The filter operators: an entry for each, with its SQL and its Python (docs/query-language.md)."""

from __future__ import annotations

import operator as compare
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from cms.query.language import json_operators
from cms.query.language.json_operators import JsonComparison
from cms.schema.types.field_type import Trait
from cms.schema.types.texts import lower_text

# Operators in Python: each comparison gives the same answer as the operator's SQL. The values are
# comparable as their types make them (`FieldType.comparable`), and never null.

Comparison = Callable[..., bool]
"""Compares a value with the operands of an operator."""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value)


def negated(compare: Comparison) -> Comparison:
    return lambda *values: not compare(*values)


def ignoring_case(compare: Comparison) -> Comparison:
    return lambda value, text: compare(lower_text(_text(value)), lower_text(_text(text)))


def always(*values: Any) -> bool:
    return True


def never(*values: Any) -> bool:
    return False


def equals_text(value: Any, text: str) -> bool:
    return _text(value) == text


def is_one_of(value: Any, entries: list[Any]) -> bool:
    return value in entries


def is_none_of(value: Any, entries: list[Any]) -> bool:
    # NOT IN a list that holds NULL is never true in SQL.
    return None not in entries and value not in entries


def is_between(value: Any, low: Any, high: Any) -> bool:
    return bool(low <= value <= high)


def is_empty(value: Any) -> bool:
    return isinstance(value, str | list | dict) and not value


def is_empty_list(entries: list[Any]) -> bool:
    return entries == []


def contains(value: Any, part: str) -> bool:
    """Tell whether a text has a part, or a list that belongs to no field an entry."""
    if isinstance(value, list):
        return any(_is_text_of(entry, str(part)) for entry in value)
    # The part is a text already, except for an object that belongs to no field.
    return str(part) in _text(value)


def _is_text_of(entry: Any, text: str) -> bool:
    return not isinstance(entry, list | dict | None) and str(entry) == text


def starts_with(value: Any, part: str) -> bool:
    return _text(value).startswith(part)


def ends_with(value: Any, part: str) -> bool:
    return _text(value).endswith(part)


def matches(value: Any, pattern: Any) -> bool:
    return pattern.search(_text(value)) is not None


class OperandKind(StrEnum):
    """The kind of operand that an operator takes."""

    NOTHING = "true or false"
    ONE = "one value"
    LIST = "a list"
    TWO = "two values"
    PATTERN = "a text"
    GEOMETRY = "a GeoJSON geometry"
    REGEX = "a regular expression"
    FLAG = "true or false, which it keeps"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of filters, of rules that are tried on payloads, or of both."""

    name: str
    operand_kind: OperandKind
    trait: Trait | None
    """The trait that a type needs for the operator; None is any type."""
    sql: str = ""
    """A template over the field and its operands, cast to the type of the field.

    Without it the operator is one of rules only.
    """
    _: KW_ONLY
    json_sql: str = ""
    """The template for JSON fields and for lists, where it is another one."""
    in_json: JsonComparison | None = None
    """How values inside of JSON fields are compared; without it their texts are."""
    pattern: str = "{0}"
    """Where an operand stands in a LIKE pattern."""
    compare: Comparison | None = None
    """The same in Python. Without it the operator is one of filters only."""
    compare_null: Callable[..., bool] = never
    """Tells whether null fulfils the operator, by its operands."""
    # Problems of validation show the operand of such an operator as `invalid`, and others as
    # `valid`.
    is_negated: bool = False
    opposite: str = ""
    """The operator that holds where this one does not: `_null: false` is `_nnull`."""
    fits_items: bool = False
    """Whether it tests related items, and arrays and objects that belong to no field."""
    uses_index: bool = False
    """Whether a list of operands is of the column's own type, for the sake of its index."""


# Templates: {0} is the field, {1} and {2} are operands.
_EMPTY = "({0} IS NULL OR {0} = '')"
# JSON is stored as it was sent, with its blanks: [ ], { } and "" are recognised by their text.
_EMPTY_JSON = "({0} IS NULL OR {0}::text ~ '^\\s*(\\[\\s*\\]|\\{\\s*\\}|null|\"\")\\s*$')"
# The CASE keeps null and an empty list apart: NOT (null) is null, so that neither `_contains` nor
# `_ncontains` holds for a field without a value.
_HOLDS = (
    "CASE WHEN {0} IS NOT NULL THEN EXISTS (SELECT FROM json_array_elements_text({0}) AS e "
    "WHERE e = {1}) END"
)
# PostGIS fails on some invalid geometries, and the failure would reveal rows that a rule hides. &&
# is there for the index.
_INTERSECTS = "({0} && {1} AND ST_Intersects(ST_MakeValid({0}), {1}))"


def _order(name: str, symbol: str, in_json: JsonComparison, comparison: Comparison) -> Operator:
    sql = f"{{0}} {symbol} {{1}}"
    return Operator(name, OperandKind.ONE, Trait.ORDER, sql, in_json=in_json, compare=comparison)


def _patterns(
    name: str, opposite: str, keyword: str, pattern: str, comparison: Comparison
) -> tuple[Operator, Operator]:
    """Return the operator of texts that fit a pattern, and the one of those that do not."""
    operator = Operator(
        name,
        OperandKind.PATTERN,
        Trait.PATTERNS,
        f"{{0}} {keyword} {{1}}",
        pattern=pattern,
        compare=comparison,
    )
    sql = f"{{0}} NOT {keyword} {{1}}"
    compare = negated(comparison)
    return operator, replace(operator, name=opposite, sql=sql, compare=compare, is_negated=True)


# Null is neither equal nor unequal to anything, as always in SQL: a row without a value passes no
# negated operator, except `_nin` with an empty list.
_ALL = (
    Operator(
        "_eq",
        OperandKind.ONE,
        Trait.EQUALITY,
        "{0} = {1}",
        in_json=json_operators.EQUAL,
        compare=compare.eq,
    ),
    Operator(
        "_neq",
        OperandKind.ONE,
        Trait.EQUALITY,
        "{0} <> {1}",
        in_json=json_operators.UNEQUAL,
        compare=compare.ne,
        is_negated=True,
    ),
    Operator(
        "_ieq",
        OperandKind.ONE,
        Trait.CASE,
        "lower({0}) = lower({1})",
        compare=ignoring_case(equals_text),
    ),
    Operator(
        "_nieq",
        OperandKind.ONE,
        Trait.CASE,
        "lower({0}) <> lower({1})",
        compare=negated(ignoring_case(equals_text)),
        is_negated=True,
    ),
    _order("_lt", "<", json_operators.LESS, compare.lt),
    _order("_lte", "<=", json_operators.LESS_OR_EQUAL, compare.le),
    _order("_gt", ">", json_operators.GREATER, compare.gt),
    _order("_gte", ">=", json_operators.GREATER_OR_EQUAL, compare.ge),
    # ANY and ALL take one array: the statement is the same for every length of the list, and the
    # answer is right for an empty one.
    Operator(
        "_in",
        OperandKind.LIST,
        Trait.EQUALITY,
        "{0} = ANY ({1})",
        in_json=json_operators.ONE_OF,
        compare=is_one_of,
        uses_index=True,
    ),
    Operator(
        "_nin",
        OperandKind.LIST,
        Trait.EQUALITY,
        "{0} <> ALL ({1})",
        in_json=json_operators.NONE_OF,
        compare=is_none_of,
        compare_null=is_empty_list,
        is_negated=True,
    ),
    Operator(
        "_between",
        OperandKind.TWO,
        Trait.ORDER,
        "{0} BETWEEN {1} AND {2}",
        in_json=json_operators.BETWEEN,
        compare=is_between,
    ),
    Operator(
        "_nbetween",
        OperandKind.TWO,
        Trait.ORDER,
        "{0} NOT BETWEEN {1} AND {2}",
        in_json=json_operators.NOT_BETWEEN,
        compare=negated(is_between),
        is_negated=True,
    ),
    Operator(
        "_null",
        OperandKind.NOTHING,
        Trait.NULL,
        "{0} IS NULL",
        in_json=json_operators.NULL,
        compare=never,
        compare_null=always,
        opposite="_nnull",
        fits_items=True,
    ),
    Operator(
        "_nnull",
        OperandKind.NOTHING,
        Trait.NULL,
        "{0} IS NOT NULL",
        in_json=json_operators.NOT_NULL,
        compare=always,
        is_negated=True,
        opposite="_null",
        fits_items=True,
    ),
    Operator(
        "_empty",
        OperandKind.NOTHING,
        Trait.EMPTINESS,
        _EMPTY,
        json_sql=_EMPTY_JSON,
        compare=is_empty,
        compare_null=always,
        opposite="_nempty",
        fits_items=True,
    ),
    Operator(
        "_nempty",
        OperandKind.NOTHING,
        Trait.EMPTINESS,
        f"NOT {_EMPTY}",
        json_sql=f"NOT {_EMPTY_JSON}",
        compare=negated(is_empty),
        is_negated=True,
        opposite="_empty",
        fits_items=True,
    ),
    Operator(
        "_contains",
        OperandKind.PATTERN,
        Trait.PARTS,
        "{0} LIKE {1}",
        json_sql=_HOLDS,
        pattern="%{0}%",
        in_json=json_operators.CONTAINS,
        compare=contains,
        fits_items=True,
    ),
    Operator(
        "_ncontains",
        OperandKind.PATTERN,
        Trait.PARTS,
        "{0} NOT LIKE {1}",
        json_sql=f"NOT ({_HOLDS})",
        pattern="%{0}%",
        in_json=json_operators.NOT_CONTAINS,
        compare=negated(contains),
        is_negated=True,
        fits_items=True,
    ),
    *_patterns("_icontains", "_nicontains", "ILIKE", "%{0}%", ignoring_case(contains)),
    *_patterns("_starts_with", "_nstarts_with", "LIKE", "{0}%", starts_with),
    *_patterns("_istarts_with", "_nistarts_with", "ILIKE", "{0}%", ignoring_case(starts_with)),
    *_patterns("_ends_with", "_nends_with", "LIKE", "%{0}", ends_with),
    *_patterns("_iends_with", "_niends_with", "ILIKE", "%{0}", ignoring_case(ends_with)),
    Operator("_intersects", OperandKind.GEOMETRY, Trait.GEOMETRY, _INTERSECTS),
    Operator(
        "_nintersects", OperandKind.GEOMETRY, Trait.GEOMETRY, f"NOT {_INTERSECTS}", is_negated=True
    ),
    Operator("_intersects_bbox", OperandKind.GEOMETRY, Trait.GEOMETRY, "{0} && {1}"),
    Operator(
        "_nintersects_bbox", OperandKind.GEOMETRY, Trait.GEOMETRY, "NOT {0} && {1}", is_negated=True
    ),
    # Rules only: PostgreSQL's regular expressions have another syntax than RE2, and can take a time
    # that grows exponentially with the pattern.
    Operator("_regex", OperandKind.REGEX, Trait.REGEX, compare=matches),
    # Rules look at the payload itself to answer it.
    Operator("_submitted", OperandKind.FLAG, None, compare=compare.eq),
)

NO_FIELD = "An operator needs a field to stand at"

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {operator.name: operator for operator in _ALL if operator.sql}
)

RULE_OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {operator.name: operator for operator in _ALL if operator.compare}
)
"""The operators of validation rules and conditions, which are tried without PostGIS."""

SECRET_OPERATORS = frozenset(
    operator.name for operator in _ALL if operator.operand_kind is OperandKind.NOTHING
)
"""The operators of hashes and concealed fields: none of them reveals the value."""
