"""The data of panels, read with the rights of the caller: one statement for each panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from cms import jsontext
from cms.dashboards.charts import draw_chart
from cms.dashboards.definition.panel_queries import Items, PanelQuery, data_of_items, panel_query
from cms.dashboards.definition.panel_types import PANEL_TYPES, Data, Panel
from cms.dashboards.pictures import Picture
from cms.dashboards.text_pictures import draw_list, draw_metric, draw_table, draw_text
from cms.database.connections import Row
from cms.database.wire import Call
from cms.errors import Problem, Refused
from cms.items.read.answers import json_body
from cms.items.read.prepare import ReadRequest, prepare_read
from cms.items.read.reads import fetch_item, fetch_items, portions_of, with_summed_fields
from cms.markdown import html_of_markdown
from cms.query.language.parse import PageSizes
from cms.query.plan.bindings import bind_values
from cms.query.sql.statement import Statement
from cms.schema.system import DASHBOARDS, PANELS
from cms.store.context import RequestContext
from cms.store.counters import check_version
from cms.store.identity import Identity
from cms.store.store import Store

# A dashboard is shown as a whole: the page of other lists would leave panels out.
_ALL_PANELS = PageSizes(default=None)

_PAINTERS: Mapping[str, Callable[[Panel, Data, Picture], bytes]] = MappingProxyType(
    {
        "metric": draw_metric,
        "list": draw_list,
        "table": draw_table,
        "time-series": draw_chart,
        "line-chart": draw_chart,
        "bar-chart": draw_chart,
        "label": draw_text,
        "markdown": draw_text,
    }
)


class PanelData(NamedTuple):
    """The data of one panel, or the error that it has instead."""

    panel: Panel
    data: Data | None = None
    refusal: Refused | None = None


class _Read(NamedTuple):
    """The read of a panel, ready to run."""

    panel: Panel
    statement: Statement
    call: Call


def read_panel(store: Store, identity: Identity, key: str) -> PanelData:
    """Return the data of a panel; raises the refusal of its read."""
    for attempt in store.reads(identity):
        with attempt as context:
            request = ReadRequest(PANELS, "fields=id,type,options,name,color")
            # Read as the caller: a hidden panel is refused like any other item.
            panel = _panel(_decoded(fetch_item(store, context, request, key=key)))
            (panel_data,) = _read_all(store, context, [panel])
    if panel_data.refusal:
        raise panel_data.refusal
    return panel_data


def draw_panel(store: Store, identity: Identity, key: str, picture: Picture) -> bytes:
    """Return the SVG of a panel with its data."""
    panel_data = read_panel(store, identity, key)
    panel = panel_data.panel
    # The colour of the panel takes the place of the theme's.
    if panel.color:
        picture = picture._replace(theme=picture.theme._replace(accent=panel.color))
    return _PAINTERS[panel.type](panel, _decoded(panel_data.data or {}), picture)


def answer_panel(store: Store, identity: Identity, key: str) -> bytes:
    """Return the answer of `GET /panels/{id}/data`."""
    panel_data = read_panel(store, identity, key)
    return json_body({"data": panel_data.data}, store.max_answer_size)


def answer_dashboard(store: Store, identity: Identity, key: str) -> bytes:
    """Return the answer of `GET /dashboards/{id}/data`.

    It has `data` or `errors` by the id of each panel that the caller may read.
    """
    for attempt in store.reads(identity):
        with attempt as context:
            request = ReadRequest(DASHBOARDS, "fields=id,panels.id,panels.type,panels.options")
            dashboard = fetch_item(store, context, request, key=key, nested_page=_ALL_PANELS)
            panels = [_panel(item) for item in _decoded(dashboard)["panels"]]
            all_data = _read_all(store, context, panels)
    entries = {panel_data.panel.id: _entry(panel_data) for panel_data in all_data}
    return json_body({"data": entries}, store.max_answer_size)


def _decoded(item: Mapping[str, Any]) -> Any:
    """Return an item as values: parts of an answer are JSON already."""
    return jsontext.loads_stored(jsontext.dumps(item))


def _panel(item: Mapping[str, Any]) -> Panel:
    options = item["options"] or {}
    return Panel(item["id"], item["type"], options, item.get("name"), item.get("color"))


def _entry(panel_data: PanelData) -> Data:
    if panel_data.refusal is None:
        return {"data": panel_data.data}
    return {"errors": [problem.as_json() for problem in panel_data.refusal.problems]}


def _read_all(store: Store, context: RequestContext, panels: Sequence[Panel]) -> list[PanelData]:
    """Return the data of panels, in their order; their statements run in one round trip.

    Raises `Stale` where a statement has met other counters than those of the snapshot.
    """
    prepared = [_prepare(store, context, panel) for panel in panels]
    reads = [entry for entry in prepared if isinstance(entry, _Read)]
    # Panels that have their data take no results.
    results = iter(context.reads.fetch_all([read.call for read in reads]) if reads else ())
    return [
        _panel_data(context, entry, next(results)) if isinstance(entry, _Read) else entry
        for entry in prepared
    ]


def _prepare(store: Store, context: RequestContext, panel: Panel) -> _Read | PanelData:
    """Return the read of a panel, or its data where no statement runs with those of the others."""
    try:
        query = _query(panel)
        if query is None:
            return PanelData(panel, _text_data(panel))
        request = ReadRequest(query.collection, params=query.params)
        statement, literals = prepare_read(store, context, request)
        # Its rows are fetched in portions, which is impossible in a pipeline.
        if portions_of(store, statement, max_bytes=store.max_answer_size):
            return PanelData(panel, _data_of(panel, fetch_items(store, context, request)))
        values = bind_values(statement.values, context.bindings(literals))
    except Refused as refused:
        return PanelData(panel, refusal=refused)
    return _Read(panel, statement, Call(statement.text, values))


def _query(panel: Panel) -> PanelQuery | None:
    """Return the query of a panel; raises `Refused` for options that nobody has checked."""
    panel_type = PANEL_TYPES.get(panel.type)
    # Writes check the options, but rows may also come from elsewhere, such as a restored dump.
    if panel_type is None:
        raise _without_options(panel, "its type is unknown")
    reasons = [
        f"{'.'.join(map(str, error.path))}: {error}" for error in panel_type.errors(panel.options)
    ]
    if reasons:
        raise _without_options(panel, "; ".join(reasons))
    return panel_query(panel.type, panel.options)


def _without_options(panel: Panel, reason: str) -> Refused:
    message = f"The panel has no valid options ({reason})."
    return Refused(Problem("UNPROCESSABLE_CONTENT", message, {"panel": panel.id}))


def _panel_data(context: RequestContext, read: _Read, result: list[Row] | Exception) -> PanelData:
    if isinstance(result, Refused):
        return PanelData(read.panel, refusal=with_summed_fields(result, read.statement))
    # Anything but a refusal concerns the connection, and with it every panel.
    if isinstance(result, Exception):
        raise result
    # Names were resolved and rules chosen for the counters of the snapshot; if these have changed,
    # the read starts again.
    check_version(context.snapshot, read.statement.version(result))
    return PanelData(read.panel, _data_of(read.panel, read.statement.items(result)))


def _data_of(panel: Panel, items: Items) -> Data:
    return data_of_items(panel.type, panel.options, items)


def _text_data(panel: Panel) -> Data:
    """Return the text of a label, or of a markdown panel with its HTML beside it."""
    text = panel.options.get("text") or ""
    if panel.type == "markdown":
        return {"text": text, "html": html_of_markdown(text)}
    return {"text": text}
