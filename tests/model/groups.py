"""Groups and aggregates over rows that are already chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

from tests.model.shape import Collection, Row, Tables
from tests.model.values import ascending, key_of, output, rank, value_of

Params = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class About:
    """An average: how many of its digits are answered is up to the database, 15 of them at
    least.
    """

    exact: Decimal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decimal) and abs(other - self.exact) <= abs(self.exact) * Decimal(
            "1e-15"
        )


def aggregated(
    tables: Tables, collection: Collection, rows: list[Row], params: Params
) -> list[dict[str, Any]]:
    """Return one entry for each group, or the only one for all rows, in order."""
    names = params.get("groupBy", [])
    groups = _groups(tables, collection, rows, names)
    for term in reversed([*params.get("sort", []), *names]):
        name = term.removeprefix("-")
        groups = sorted(
            groups, key=_sorted_by(tables, collection, name, names), reverse=term.startswith("-")
        )
    return [_entry(tables, collection, group, params) for group in groups]


def _groups(
    tables: Tables, collection: Collection, rows: list[Row], names: Sequence[str]
) -> list[list[Row]]:
    if not names:
        return [rows]
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        values = tuple(rank(tables, *value_of(tables, collection, row, name)) for name in names)
        groups.setdefault(values, []).append(row)
    return list(groups.values())


def _sorted_by(
    tables: Tables, collection: Collection, name: str, names: Sequence[str]
) -> Callable[[list[Row]], Any]:
    def key(group: list[Row]) -> Any:
        if name in names:
            return rank(tables, *value_of(tables, collection, group[0], name))
        function, _, field = name.partition(".")
        kind = collection.columns[field] if function in ("min", "max") else "decimal"
        return rank(tables, kind, _total(tables, collection, group, (function, field or "*")))

    return key


def _entry(
    tables: Tables, collection: Collection, group: list[Row], params: Params
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        key_of(name): output(*value_of(tables, collection, group[0], name))
        for name in params.get("groupBy", [])
    }
    for function, fields in params.get("aggregate", {}).items():
        totals = {
            field: _aggregate(tables, collection, group, (function, field)) for field in fields
        }
        entry[function] = totals["*"] if fields == ["*"] else totals
    return entry


def _aggregate(
    tables: Tables, collection: Collection, group: list[Row], aggregate: tuple[str, str]
) -> Any:
    function, field = aggregate
    total = _total(tables, collection, group, aggregate)
    if function.startswith("avg") and total is not None:
        return About(total)
    return output(collection.columns[field], total) if function in ("min", "max") else total


def _total(
    tables: Tables, collection: Collection, group: list[Row], aggregate: tuple[str, str]
) -> Any:
    """Return an aggregate of what is not null; the sum of nothing is null."""
    function, field = aggregate
    if field == "*":
        return len(group)
    values = [row[field] for row in group if row[field] is not None]
    if function.endswith("Distinct"):
        values = list(set(values))
    if function.startswith("count"):
        return len(values)
    if not values:
        return None
    if function in ("min", "max"):
        return ascending(tables, collection.columns[field], values)[0 if function == "min" else -1]
    with localcontext(prec=60):
        return Decimal(sum(values)) / (1 if function.startswith("sum") else len(values))
