"""How many statements and round trips the data of a dashboard take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from cms.database.wire import Call, Wire
from tests.client import Client
from tests.things import field, table

STATEMENTS: dict[str, dict[str, object]] = {
    "metric": {"function": "sum", "field": "price"},
    "list": {"displayTemplate": "{{name}}: {{price}}"},
    "table": {"fields": ["*"]},
    "time-series": {"dateField": "sold"},
    "line-chart": {"xAxis": "name"},
    "bar-chart": {"xAxis": "year(sold)"},
}
"""Options of the types of panels whose data take a statement."""


def test_a_dashboard_takes_a_statement_for_each_panel_in_one_round_trip(
    admin: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    orders = table(admin, field("name", "string"), field("price", "integer"), field("sold", "date"))
    orders.add({"name": "Pears", "price": 3, "sold": "2024-12-30"})
    panels = [
        {"type": type, "options": {"collection": orders.name, **options}}
        for type, options in STATEMENTS.items()
    ]
    dashboard = admin.post("/dashboards", {"name": "Sales", "panels": panels * 5}).data["id"]
    path = f"/dashboards/{dashboard}/data"
    admin.get(path)  # prepares the statements
    statements: list[str] = []
    pipelines: list[int] = []
    trace = tmp_path / "trace"
    run: Callable[..., Any] = Wire.run
    run_all: Callable[..., Any] = Wire.run_all

    def counted_run(wire: Wire, text: str, *values: Any, **facts: Any) -> Any:
        statements.append(text)
        return run(wire, text, *values, **facts)

    def traced_run_all(wire: Wire, calls: Sequence[Call], **facts: Any) -> Any:
        pipelines.append(len(calls))
        with trace.open("w") as file:
            wire._connection.pgconn.trace(file.fileno())
            try:
                return run_all(wire, calls, **facts)
            finally:
                wire._connection.pgconn.untrace()

    monkeypatch.setattr(Wire, "run", counted_run)
    monkeypatch.setattr(Wire, "run_all", traced_run_all)
    data = admin.get(path).data
    assert all("data" in entry for entry in data.values())
    assert pipelines == [len(data)] == [5 * len(STATEMENTS)]
    # The caller, and the dashboard with its panels.
    assert len(statements) <= 2
    # F are messages of the client and B of the server, which waits for all of the former.
    directions = [line.split("\t")[1] for line in trace.read_text().splitlines()]
    assert [direction for direction, _ in groupby(directions)] == ["F", "B"]
