"""The filter operators as data: which types take them, and their SQL (docs/query-language.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from cms.schema.types import Family


class Takes(StrEnum):
    """What operand an operator takes."""

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
    """An operator; `{0}` is the field, `{1}` and `{2}` are the operands, cast to the field's type.

    `pattern` says where an operand stands in a LIKE pattern; `json_sql` is the SQL for json fields
    and for lists.
    """

    name: str
    takes: Takes
    families: frozenset[Family]
    sql: str
    pattern: str = "{0}"
    json_sql: str | None = None


_EQUAL = frozenset({Family.TEXT, Family.NUMBER, Family.MOMENT, Family.BOOLEAN, Family.UUID})
_ORDERED = frozenset({Family.TEXT, Family.NUMBER, Family.MOMENT})
_WORDS = frozenset({Family.TEXT, Family.CSV})
_EMPTIABLE = frozenset({Family.TEXT, Family.CSV, Family.JSON, Family.LIST, Family.HASH})
_PARTS = _WORDS | {Family.LIST}
_ANY = frozenset(Family) - {Family.ALIAS}
_SHAPES = frozenset({Family.GEOMETRY})

_EMPTY = "({0} IS NULL OR {0} = '')"
_EMPTY_JSON = "({0} IS NULL OR {0}::text ~ '^\\s*(\\[\\s*\\]|\\{\\s*\\}|null|\"\")\\s*$')"
_HOLDS = (
    "CASE WHEN {0} IS NOT NULL THEN EXISTS (SELECT FROM json_array_elements_text({0}) AS e "
    "WHERE e = {1}) END"
)
# PostGIS fails on some invalid geometries, and the failure would tell of rows that a rule hides.
# && is there for the index.
_INTERSECTS = "({0} && {1} AND ST_Intersects(ST_MakeValid({0}), {1}))"

_ALL = (
    Operator("_eq", Takes.ONE, _EQUAL, "{0} = {1}"),
    Operator("_neq", Takes.ONE, _EQUAL, "{0} <> {1}"),
    Operator("_ieq", Takes.ONE, frozenset({Family.TEXT}), "lower({0}) = lower({1})"),
    Operator("_nieq", Takes.ONE, frozenset({Family.TEXT}), "lower({0}) <> lower({1})"),
    Operator("_lt", Takes.ONE, _ORDERED, "{0} < {1}"),
    Operator("_lte", Takes.ONE, _ORDERED, "{0} <= {1}"),
    Operator("_gt", Takes.ONE, _ORDERED, "{0} > {1}"),
    Operator("_gte", Takes.ONE, _ORDERED, "{0} >= {1}"),
    # ANY and ALL take one array: the statement is the same for every length of the list, and the
    # answer is right for an empty one.
    Operator("_in", Takes.LIST, _EQUAL, "{0} = ANY ({1})"),
    Operator("_nin", Takes.LIST, _EQUAL, "{0} <> ALL ({1})"),
    Operator("_between", Takes.TWO, _ORDERED, "{0} BETWEEN {1} AND {2}"),
    Operator("_nbetween", Takes.TWO, _ORDERED, "{0} NOT BETWEEN {1} AND {2}"),
    Operator("_null", Takes.NOTHING, _ANY, "{0} IS NULL"),
    Operator("_nnull", Takes.NOTHING, _ANY, "{0} IS NOT NULL"),
    Operator("_empty", Takes.NOTHING, _EMPTIABLE, _EMPTY, json_sql=_EMPTY_JSON),
    Operator("_nempty", Takes.NOTHING, _EMPTIABLE, f"NOT {_EMPTY}", json_sql=f"NOT {_EMPTY_JSON}"),
    Operator("_contains", Takes.PATTERN, _PARTS, "{0} LIKE {1}", "%{0}%", json_sql=_HOLDS),
    Operator(
        "_ncontains", Takes.PATTERN, _PARTS, "{0} NOT LIKE {1}", "%{0}%", json_sql=f"NOT ({_HOLDS})"
    ),
    Operator("_icontains", Takes.PATTERN, _WORDS, "{0} ILIKE {1}", "%{0}%"),
    Operator("_nicontains", Takes.PATTERN, _WORDS, "{0} NOT ILIKE {1}", "%{0}%"),
    Operator("_starts_with", Takes.PATTERN, _WORDS, "{0} LIKE {1}", "{0}%"),
    Operator("_nstarts_with", Takes.PATTERN, _WORDS, "{0} NOT LIKE {1}", "{0}%"),
    Operator("_istarts_with", Takes.PATTERN, _WORDS, "{0} ILIKE {1}", "{0}%"),
    Operator("_nistarts_with", Takes.PATTERN, _WORDS, "{0} NOT ILIKE {1}", "{0}%"),
    Operator("_ends_with", Takes.PATTERN, _WORDS, "{0} LIKE {1}", "%{0}"),
    Operator("_nends_with", Takes.PATTERN, _WORDS, "{0} NOT LIKE {1}", "%{0}"),
    Operator("_iends_with", Takes.PATTERN, _WORDS, "{0} ILIKE {1}", "%{0}"),
    Operator("_niends_with", Takes.PATTERN, _WORDS, "{0} NOT ILIKE {1}", "%{0}"),
    Operator("_intersects", Takes.GEOMETRY, _SHAPES, _INTERSECTS),
    Operator("_nintersects", Takes.GEOMETRY, _SHAPES, f"NOT {_INTERSECTS}"),
    Operator("_intersects_bbox", Takes.GEOMETRY, _SHAPES, "{0} && {1}"),
    Operator("_nintersects_bbox", Takes.GEOMETRY, _SHAPES, "NOT {0} && {1}"),
)

OPERATORS: Mapping[str, Operator] = MappingProxyType({operator.name: operator for operator in _ALL})

_ONLY_IN_RULES = (
    Operator(
        "_regex",
        Takes.REGEX,
        frozenset({Family.TEXT, Family.CSV, Family.NUMBER, Family.UUID, Family.HASH}),
        "",
    ),
    Operator("_submitted", Takes.FLAG, frozenset(Family), ""),
)

RULE_OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        operator.name: operator
        for operator in (*_ALL, *_ONLY_IN_RULES)
        if operator.takes is not Takes.GEOMETRY
    }
)
"""The operators of validation rules and conditions, which are tried without PostGIS."""

NEGATED: Mapping[str, str] = MappingProxyType(
    {"_null": "_nnull", "_nnull": "_null", "_empty": "_nempty", "_nempty": "_empty"}
)
"""The opposites of operators without an operand: `_null: false` is `_nnull`."""

SECRET_OPERATORS = frozenset(NEGATED)
"""The operators of hashes and concealed fields: none of them could tell the value."""
