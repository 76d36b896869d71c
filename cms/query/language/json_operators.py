"""How operators compare values inside of JSON fields: SQL templates, and the forms of operands.

The entries of cms/query/language/operators.py refer to these; cms/query/plan/conditions.py converts
the operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JsonForm(StrEnum):
    """The form of an operand as a parameter."""

    SCALAR = "a text, a number or a boolean"
    SCALAR_OR_NULL = "one of these, or null"
    SCALARS = "a list of these"
    TYPE = "its type, or that of null"
    TYPES = "the types of a list"
    LOWER_BOUND = "the lowest value of its type"
    UPPER_BOUND = "a value that is higher than all of its type"
    TEXT = "a text, whatever it looks like"
    PATTERN = "a pattern of LIKE"
    ENTRIES = "the entries of an array that it may stand for"


@dataclass(frozen=True, slots=True)
class JsonParameter:
    """A parameter that is made of one of the operands, by its number."""

    form: JsonForm
    operand: int = 0


@dataclass(frozen=True, slots=True)
class JsonComparison:
    """A template over the value, as json and null where it is missing, and its parameters."""

    sql: str
    parameters: tuple[JsonParameter, ...] = ()
    uses_index: bool = False
    """Whether an index over the key of the value serves it."""


# {0} is the value, the others are parameters. An index is over the key of the value, and so a
# comparison is one of keys.
_KEY = "system_json_key({0})"
TEXT_OF_VALUE = "system_json_text({0})"
_TYPE = "json_typeof({0})"
_ENTRIES = "(SELECT FROM json_array_elements({0}) AS e WHERE system_json_key(e.value) = ANY ({2}))"

_SCALAR = JsonParameter(JsonForm.SCALAR)
_SECOND_SCALAR = JsonParameter(JsonForm.SCALAR, operand=1)
_SCALAR_OR_NULL = JsonParameter(JsonForm.SCALAR_OR_NULL)
_SCALARS = JsonParameter(JsonForm.SCALARS)
_TYPE_OF_OPERAND = JsonParameter(JsonForm.TYPE)
_TYPE_OF_SECOND = JsonParameter(JsonForm.TYPE, operand=1)
_LOWER_BOUND = JsonParameter(JsonForm.LOWER_BOUND)
_LOWER_BOUND_OF_SECOND = JsonParameter(JsonForm.LOWER_BOUND, operand=1)
_UPPER_BOUND = JsonParameter(JsonForm.UPPER_BOUND)
_PATTERN_AND_ENTRIES = (JsonParameter(JsonForm.PATTERN), JsonParameter(JsonForm.ENTRIES))

# A query string can compare with null as well: `filter[meta.price][_eq]=null`.
EQUAL = JsonComparison(
    f"({_KEY} = {{1}} OR {{1}} = 'null' AND {{0}} IS NULL)", (_SCALAR_OR_NULL,), uses_index=True
)
UNEQUAL = JsonComparison(
    f"({_KEY} <> {{1}} AND {_TYPE} = {{2}} OR {{1}} = 'null' AND {{0}} IS NOT NULL)",
    (_SCALAR_OR_NULL, _TYPE_OF_OPERAND),
)
# The bounds are in the statement whatever the operand: their values follow from it.
LESS = JsonComparison(
    f"({_KEY} < {{1}} AND {_KEY} >= {{2}})", (_SCALAR, _LOWER_BOUND), uses_index=True
)
LESS_OR_EQUAL = JsonComparison(
    f"({_KEY} <= {{1}} AND {_KEY} >= {{2}})", (_SCALAR, _LOWER_BOUND), uses_index=True
)
GREATER = JsonComparison(
    f"({_KEY} > {{1}} AND {_KEY} < {{2}})", (_SCALAR, _UPPER_BOUND), uses_index=True
)
GREATER_OR_EQUAL = JsonComparison(
    f"({_KEY} >= {{1}} AND {_KEY} < {{2}})", (_SCALAR, _UPPER_BOUND), uses_index=True
)
BETWEEN = JsonComparison(
    f"({_KEY} BETWEEN {{1}} AND {{2}} AND {_KEY} >= {{3}} AND {_KEY} < {{4}})",
    (_SCALAR, _SECOND_SCALAR, _LOWER_BOUND_OF_SECOND, _UPPER_BOUND),
    uses_index=True,
)
NOT_BETWEEN = JsonComparison(
    f"({_KEY} NOT BETWEEN {{1}} AND {{2}} AND {_TYPE} = {{3}} AND {_TYPE} = {{4}})",
    (_SCALAR, _SECOND_SCALAR, _TYPE_OF_OPERAND, _TYPE_OF_SECOND),
)
ONE_OF = JsonComparison(f"{_KEY} = ANY ({{1}})", (_SCALARS,), uses_index=True)
NONE_OF = JsonComparison(
    f"({_KEY} <> ALL ({{1}}) AND ({_TYPE} = ANY ({{2}}) OR cardinality({{2}}) = 0))",
    (_SCALARS, JsonParameter(JsonForm.TYPES)),
)
NULL = JsonComparison("{0} IS NULL")
NOT_NULL = JsonComparison("{0} IS NOT NULL")
CONTAINS = JsonComparison(
    f"CASE {_TYPE} WHEN 'string' THEN {TEXT_OF_VALUE} LIKE {{1}} "
    f"WHEN 'array' THEN EXISTS {_ENTRIES} END",
    _PATTERN_AND_ENTRIES,
)
NOT_CONTAINS = JsonComparison(
    f"CASE {_TYPE} WHEN 'string' THEN {TEXT_OF_VALUE} NOT LIKE {{1}} "
    f"WHEN 'array' THEN NOT EXISTS {_ENTRIES} END",
    _PATTERN_AND_ENTRIES,
)
