"""The query of a panel, in the query language (docs/dashboards.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from cms.dashboards.definition.panel_types import ALL_TIME, PRECISIONS, ROW_FUNCTIONS, range_start
from cms.schema.field_names import parse_name, parse_value_path

PanelOptions = Mapping[str, Any]
Items = Sequence[Mapping[str, Any]]
PanelParams = dict[str, object]

MAX_POINTS = 1_000
"""Points of a chart: of a time series the newest, of others the first."""
DEFAULT_ROWS = 5

# `{{ author.name }}`: one path, without commas, which would be several names of `fields`.
_TEMPLATE_FIELD = re.compile(r"\{\{\s*([^{},\s]+)\s*\}\}")

_ALL_ROWS = "*"

_AGGREGATED_OPTIONS = {
    "metric": "field",
    "time-series": "valueField",
    "line-chart": "yAxis",
    "bar-chart": "yAxis",
}
"""The options that name the field of an aggregate, by the types of panels that have one."""


class PanelQuery(NamedTuple):
    """The query of a panel, as the parameters of a list read."""

    collection: str
    params: PanelParams


def panel_query(panel_type: str, options: PanelOptions) -> PanelQuery | None:
    """Return the query of a panel whose options are valid; None for a panel without data."""
    filters: list[object] = []
    if options.get("filter"):
        filters.append(options["filter"])
    match panel_type:
        case "metric" if options["function"] in ROW_FUNCTIONS:
            # The value of the first or last row in the order of `sortField`.
            sort_term = _sort_term(options["sortField"], descending=options["function"] == "last")
            params: PanelParams = {"fields": [options["field"]], "sort": [sort_term], "limit": 1}
        case "metric":
            params = {"aggregate": _aggregate_of(panel_type, options).param}
        case "list":
            template = options.get("displayTemplate") or ""
            # A dict instead of a set keeps the order, so that equal panels send equal queries.
            names = dict.fromkeys(_TEMPLATE_FIELD.findall(template))
            params = _row_params(options, list(names) or ["*"])
        case "table":
            params = _row_params(options, options.get("fields") or ["*"])
        case "time-series":
            groups = _time_groups(options).values()
            # The newest come first, so that the limit leaves the oldest out.
            params = _group_params(panel_type, options, groups, [f"-{group}" for group in groups])
            filters += _time_filters(options)
        case "line-chart" | "bar-chart":
            groups = _chart_groups(options).values()
            params = _group_params(panel_type, options, groups, groups)
        case _:
            return None
    # All in one `_and`, so that none can replace another.
    if filters:
        params["filter"] = {"_and": filters}
    return PanelQuery(options["collection"], params)


def data_of_items(panel_type: str, options: PanelOptions, items: Items) -> dict[str, object]:
    """Return the data of a panel from the items of its query."""
    match panel_type:
        case "metric":
            # Without a group, an aggregate has one row at most.
            return {"value": _metric_value(options, items[0]) if items else None}
        case "list" | "table":
            return {"items": list(items)}
    aggregate = _aggregate_of(panel_type, options)
    points: list[dict[str, object]] = []
    if panel_type == "time-series":
        # `year(date)` is answered under `date_year`.
        keys = {part: parse_name(group).key for part, group in _time_groups(options).items()}
        # Charts run from the oldest to the newest.
        for item in reversed(items):
            date = _moment({part: item[key] for part, key in keys.items()})
            points.append({"date": date, "value": aggregate.value_in(item)})
    else:
        keys = {member: parse_name(group).key for member, group in _chart_groups(options).items()}
        for item in items:
            groups = {member: _grouped_value(item, key) for member, key in keys.items()}
            points.append({**groups, "y": aggregate.value_in(item)})
    return {"points": points}


def _sort_term(field: str, *, descending: bool) -> str:
    return f"-{field}" if descending else field


def _row_params(options: PanelOptions, fields: Sequence[str]) -> PanelParams:
    params: PanelParams = {
        "fields": list(fields),
        "limit": int(options.get("limit") or DEFAULT_ROWS),
    }
    sort_field = options.get("sortField")
    if sort_field:
        descending = options.get("sortDirection") != "asc"
        # Without a direction the newest or largest come first, as a list of few rows shows them.
        params["sort"] = [_sort_term(sort_field, descending=descending)]
    return params


def _group_params(
    panel_type: str, options: PanelOptions, groups: Iterable[str], sort: Iterable[str]
) -> PanelParams:
    return {
        "groupBy": list(groups),
        "aggregate": _aggregate_of(panel_type, options).param,
        "sort": list(sort),
        "limit": MAX_POINTS,
    }


def _metric_value(options: PanelOptions, item: Mapping[str, Any]) -> object:
    if options["function"] in ROW_FUNCTIONS:
        return value_at(item, options["field"])
    return _aggregate_of("metric", options).value_in(item)


def _chart_groups(options: PanelOptions) -> dict[str, str]:
    """Return the groups of a chart, by the members of its points."""
    groups = {"x": options["xAxis"]}
    # A line for each value of `grouping`.
    if options.get("grouping"):
        groups["group"] = options["grouping"]
    return groups


def _time_groups(options: PanelOptions) -> dict[str, str]:
    """Return the groups of a time series, by the parts of a moment."""
    parts = PRECISIONS[options.get("precision") or "day"]
    return {part: f"{part}({options['dateField']})" for part in parts}


def _time_filters(options: PanelOptions) -> Iterator[Mapping[str, object]]:
    field = options["dateField"]
    # PostgreSQL has dates before and after these, which Python's calendar has not.
    yield {field: {"_between": ["0001-01-01", "9999-12-31"]}}
    length = options.get("range")
    if length and length != ALL_TIME:
        yield {field: {"_gte": range_start(length)}}


def display_text(
    template: str, item: Mapping[str, Any], *, as_text: Callable[[object], str]
) -> str:
    """Return a display template with the values of an item in their places."""
    return _TEMPLATE_FIELD.sub(lambda matched: as_text(value_at(item, matched[1])), template)


def chart_function(options: PanelOptions) -> str:
    """Return the function of a chart, which line charts of Directus call `aggregation`."""
    return options.get("function") or options.get("aggregation") or "count"


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


def _aggregate_of(panel_type: str, options: PanelOptions) -> _PanelAggregate:
    function = chart_function(options)
    if panel_type == "time-series":
        function = options.get("function") or "count"
    return _PanelAggregate(function, options.get(_AGGREGATED_OPTIONS[panel_type]) or _ALL_ROWS)


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
