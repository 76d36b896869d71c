"""The filter operators: an entry for each, with its SQL and its Python (docs/query-language.md)."""

from __future__ import annotations

import operator as compare
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from types import MappingProxyType

from cms.query.language import json_operators
from cms.query.language.json_operators import JsonComparison
from cms.query.language.python_comparisons import (
    Comparison,
    always,
    contains,
    ends_with,
    equals_text,
    ignoring_case,
    is_between,
    is_empty,
    is_empty_list,
    is_none_of,
    is_one_of,
    matches,
    negated,
    never,
    starts_with,
)
from cms.schema.types.field_type import Trait


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
    Operator(
        "_lt",
        OperandKind.ONE,
        Trait.ORDER,
        "{0} < {1}",
        in_json=json_operators.LESS,
        compare=compare.lt,
    ),
    Operator(
        "_lte",
        OperandKind.ONE,
        Trait.ORDER,
        "{0} <= {1}",
        in_json=json_operators.LESS_OR_EQUAL,
        compare=compare.le,
    ),
    Operator(
        "_gt",
        OperandKind.ONE,
        Trait.ORDER,
        "{0} > {1}",
        in_json=json_operators.GREATER,
        compare=compare.gt,
    ),
    Operator(
        "_gte",
        OperandKind.ONE,
        Trait.ORDER,
        "{0} >= {1}",
        in_json=json_operators.GREATER_OR_EQUAL,
        compare=compare.ge,
    ),
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
    Operator(
        "_icontains",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} ILIKE {1}",
        pattern="%{0}%",
        compare=ignoring_case(contains),
    ),
    Operator(
        "_nicontains",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} NOT ILIKE {1}",
        pattern="%{0}%",
        compare=negated(ignoring_case(contains)),
        is_negated=True,
    ),
    Operator(
        "_starts_with",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} LIKE {1}",
        pattern="{0}%",
        compare=starts_with,
    ),
    Operator(
        "_nstarts_with",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} NOT LIKE {1}",
        pattern="{0}%",
        compare=negated(starts_with),
        is_negated=True,
    ),
    Operator(
        "_istarts_with",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} ILIKE {1}",
        pattern="{0}%",
        compare=ignoring_case(starts_with),
    ),
    Operator(
        "_nistarts_with",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} NOT ILIKE {1}",
        pattern="{0}%",
        compare=negated(ignoring_case(starts_with)),
        is_negated=True,
    ),
    Operator(
        "_ends_with",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} LIKE {1}",
        pattern="%{0}",
        compare=ends_with,
    ),
    Operator(
        "_nends_with",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} NOT LIKE {1}",
        pattern="%{0}",
        compare=negated(ends_with),
        is_negated=True,
    ),
    Operator(
        "_iends_with",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} ILIKE {1}",
        pattern="%{0}",
        compare=ignoring_case(ends_with),
    ),
    Operator(
        "_niends_with",
        OperandKind.PATTERN,
        Trait.PATTERNS,
        "{0} NOT ILIKE {1}",
        pattern="%{0}",
        compare=negated(ignoring_case(ends_with)),
        is_negated=True,
    ),
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
