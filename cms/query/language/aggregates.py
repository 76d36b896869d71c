"""The aggregates: an entry for each, with the trait that it needs of a type and its SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from cms.schema.types.field_type import Trait


class AggregateOutput(Enum):
    """How an answer shows the result of an aggregate."""

    COUNT = auto()
    VALUE_OF_THE_FIELD = auto()
    NUMBER = auto()


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A function over the values of a group; only one whose output is a count takes `*`."""

    trait: Trait | None
    """The trait that a type needs for it; None is any type."""
    output: AggregateOutput
    sql: str
    """A template over the field."""
    json_sql: str
    """A template over a value inside of JSON, whose type differs from item to item."""


_COUNT = AggregateOutput.COUNT
_VALUE = AggregateOutput.VALUE_OF_THE_FIELD
_NUMBER = AggregateOutput.NUMBER


def _of_numbers(template: str) -> AggregateFunction:
    json_sql = template.replace("{0}", "system_json_number({0})")
    return AggregateFunction(Trait.ARITHMETIC, _NUMBER, template, json_sql)


def _extreme(name: str) -> AggregateFunction:
    # Inside of JSON: of numbers, if there are any, else of texts.
    json_sql = (
        f"coalesce(to_jsonb({name}(system_json_number({{0}}))), "
        f"to_jsonb({name}(system_json_text({{0}}))))"
    )
    return AggregateFunction(Trait.ORDER, _VALUE, f"{name}({{0}})", json_sql)


AGGREGATES: Mapping[str, AggregateFunction] = MappingProxyType(
    {
        "count": AggregateFunction(None, _COUNT, "count({0})", "count({0})"),
        # DISTINCT sorts or hashes, for which PostgreSQL needs an equality of the type; json has
        # none.
        "countDistinct": AggregateFunction(
            Trait.SORTING,
            _COUNT,
            "count(DISTINCT {0})",
            "count(DISTINCT system_json_key({0}))",
        ),
        # It takes `*` only; the values of a field are counted by `count`.
        "countAll": AggregateFunction(Trait.ARITHMETIC, _COUNT, "count({0})", "count({0})"),
        "sum": _of_numbers("sum({0})"),
        "sumDistinct": _of_numbers("sum(DISTINCT {0})"),
        "avg": _of_numbers("avg({0})"),
        "avgDistinct": _of_numbers("avg(DISTINCT {0})"),
        "min": _extreme("min"),
        "max": _extreme("max"),
    }
)
