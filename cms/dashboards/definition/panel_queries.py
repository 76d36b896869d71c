"""The query of a panel, in the query language (docs/dashboards.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from cms.dashboards.definition.panel_types import ALL_TIME, PRECISIONS, ROW_FUNCTIONS, range_start
from cms.schema.names import parse_name, parse_value_path

PanelOptions = Mapping[str, Any]
Items = Sequence[Mapping[str, Any]]
PanelParams = dict[str, object]

MAX_POINTS = 1_000
"""Points of a chart: of a time series the newest, of others the first."""
DEFAULT_ROWS = 5

# `{{ author.name }}`: one path, without commas, which would be several names of `fields`.
_TEMPLATE_FIELD = re.compile(r"\{\{\s*([^{},\s]+)\s*\}\}")

_ALL_ROWS = "*"


class PanelQuery(NamedTuple):
    """The query of a panel, as the parameters of a list read, and the conversion of its items."""

    collection: str
    params: PanelParams
    data_of: Callable[[Items], dict[str, object]]


def panel_query(panel_type: str, options: PanelOptions) -> PanelQuery | None:
    """Return the query of a panel whose options are valid; None for a panel without data."""
    match panel_type:
        case "metric" if options["function"] in ROW_FUNCTIONS:
            return _row_metric(options)
        case "metric":
            return _aggregate_metric(options)
        case "list":
            return _list(options)
        case "table":
            return _rows(options, options.get("fields") or ["*"])
        case "time-series":
            return _time_series(options)
        case "line-chart" | "bar-chart":
            return _chart(options)
        case _:
            return None


def _aggregate_metric(options: PanelOptions) -> PanelQuery:
    function = options["function"]
    aggregate = _PanelAggregate(function, options.get("field") or _ALL_ROWS)

    def data_of(items: Items) -> dict[str, object]:
        # There is no group, so an aggregate has one row at most.
        return _first_value(items, aggregate.value_in)

    return _query(options, {"aggregate": aggregate.param}, data_of)


def _row_metric(options: PanelOptions) -> PanelQuery:
    """Return the query of the value of the first or last row in the order of `sortField`."""
    field = options["field"]
    is_last = options["function"] == "last"
    sort_field = _sort_term(options["sortField"], descending=is_last)
    params: PanelParams = {"fields": [field], "sort": [sort_field], "limit": 1}

    def data_of(items: Items) -> dict[str, object]:
        return _first_value(items, lambda item: value_at(item, field))

    return _query(options, params, data_of)


def _first_value(
    items: Items, value_of: Callable[[Mapping[str, Any]], object]
) -> dict[str, object]:
    """Return the data of a metric: the value of the first item, null where there is none."""
    if not items:
        return {"value": None}
    return {"value": value_of(items[0])}


def _list(options: PanelOptions) -> PanelQuery:
    template = options.get("displayTemplate") or ""
    # A dict instead of a set keeps the order, so that equal panels send equal queries.
    names = dict.fromkeys(_TEMPLATE_FIELD.findall(template))
    return _rows(options, list(names) or ["*"])


def display_text(
    template: str, item: Mapping[str, Any], *, as_text: Callable[[object], str]
) -> str:
    """Return a display template with the values of an item in their places."""
    return _TEMPLATE_FIELD.sub(lambda matched: as_text(value_at(item, matched[1])), template)


def _sort_term(field: str, *, descending: bool) -> str:
    if descending:
        return f"-{field}"
    return field


def _rows(options: PanelOptions, fields: Sequence[str]) -> PanelQuery:
    params: PanelParams = {
        "fields": list(fields),
        "limit": int(options.get("limit") or DEFAULT_ROWS),
    }
    sort_field = options.get("sortField")
    if sort_field:
        descending = options.get("sortDirection") != "asc"
        # Without a direction the newest or largest come first, as a list of few rows shows them.
        params["sort"] = [_sort_term(sort_field, descending=descending)]
    return _query(options, params, lambda items: {"items": list(items)})


def _chart(options: PanelOptions) -> PanelQuery:
    aggregate = _PanelAggregate(chart_function(options), options.get("yAxis") or _ALL_ROWS)
    # A line for each value of `grouping`.
    groups = {"x": options["xAxis"]}
    if options.get("grouping"):
        groups["group"] = options["grouping"]
    params: PanelParams = {
        "groupBy": list(groups.values()),
        "aggregate": aggregate.param,
        "sort": list(groups.values()),
        "limit": MAX_POINTS,
    }
    # `year(date)` is answered under `date_year`.
    names = {member: parse_name(field).key for member, field in groups.items()}

    def data_of(items: Items) -> dict[str, object]:
        points = []
        for item in items:
            point = {member: _grouped_value(item, name) for member, name in names.items()}
            points.append({**point, "y": aggregate.value_in(item)})
        return {"points": points}

    return _query(options, params, data_of)


def chart_function(options: PanelOptions) -> str:
    """Return the function of a chart, which line charts of Directus call `aggregation`."""
    return options.get("function") or options.get("aggregation") or "count"


def _time_series(options: PanelOptions) -> PanelQuery:
    field = options["dateField"]
    parts = PRECISIONS[options.get("precision") or "day"]
    aggregate = _PanelAggregate(
        options.get("function") or "count", options.get("valueField") or _ALL_ROWS
    )
    groups = [f"{part}({field})" for part in parts]
    params: PanelParams = {
        "groupBy": groups,
        "aggregate": aggregate.param,
        # The newest come first, so that the limit leaves the oldest out.
        "sort": [f"-{group}" for group in groups],
        "limit": MAX_POINTS,
    }
    # `year(date)` is answered under `date_year`.
    key_by_part = {part: parse_name(f"{part}({field})").key for part in parts}

    def data_of(items: Items) -> dict[str, object]:
        points = []
        # Charts run from the oldest to the newest.
        for item in reversed(items):
            values = {part: item[key] for part, key in key_by_part.items()}
            points.append({"date": _moment(values), "value": aggregate.value_in(item)})
        return {"points": points}

    # PostgreSQL has dates before and after these, which Python's calendar has not.
    has_date = {field: {"_between": ["0001-01-01", "9999-12-31"]}}
    return _query(options, params, data_of, has_date, *_in_range(options))


def _in_range(options: PanelOptions) -> list[Mapping[str, object]]:
    length = options.get("range")
    if not length or length == ALL_TIME:
        return []
    return [{options["dateField"]: {"_gte": range_start(length)}}]


def _moment(parts: Mapping[str, int]) -> str:
    """Return the beginning of a period, in UTC, as dates are in answers."""
    # The ISO year, because the first days of January may belong to the last week of the year
    # before.
    if "isoyear" in parts:
        monday = date.fromisocalendar(parts["isoyear"], parts["week"], 1)
        moment = datetime(monday.year, monday.month, monday.day, tzinfo=UTC)
    else:
        moment = datetime(
            parts["year"],
            parts.get("month", 1),
            parts.get("day", 1),
            parts.get("hour", 0),
            parts.get("minute", 0),
            parts.get("second", 0),
            tzinfo=UTC,
        )
    return moment.isoformat().replace("+00:00", "Z")


class _PanelAggregate(NamedTuple):
    """One aggregate of a field, or of the rows themselves."""

    function: str
    field: str

    @property
    def param(self) -> dict[str, object]:
        return {self.function: [self.field]}

    def value_in(self, item: Mapping[str, Any]) -> object:
        # {"count": 3} counts rows, {"sum": {"price": 9}} has the field.
        value = item[self.function]
        if self.field == _ALL_ROWS:
            return value
        return _grouped_value(value, self.field)


def _grouped_value(values: Mapping[str, Any], name: str) -> object:
    """Return the value of a group or an aggregate; `meta.kind` is answered under `meta_kind`."""
    if name in values:
        return values[name]
    return values[name.replace(".", "_")]


def value_at(item: Mapping[str, Any], path: str) -> object:
    """Return the value of a dotted path in an item; None where it leads nowhere."""
    value: object = item
    for name in parse_value_path(path):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name.key)
    return value


def _query(
    options: PanelOptions,
    params: PanelParams,
    data_of: Callable[[Items], dict[str, object]],
    *filters: Mapping[str, object],
) -> PanelQuery:
    """Return a query with the filter of the panel beside those that its type needs."""
    conditions = list(filters)
    own_filter = options.get("filter")
    if own_filter:
        conditions.insert(0, own_filter)
    # All in one `_and`, so that none can replace another.
    if conditions:
        params["filter"] = {"_and": conditions}
    return PanelQuery(options["collection"], params, data_of)
