"""GET /utils/explain: the statement of a read, its parameters, PostgreSQL's plan."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.client import Client
from tests.things import Table, field, table


@pytest.fixture
def things(admin: Client) -> Table:
    return table(admin, field("name", "string"), field("size", "integer", is_indexed=True))


@pytest.mark.parametrize("encode", [str, quote])
def test_it_tells_statement_parameters_and_plan(things: Table, encode: type[str]) -> None:
    path = f"{things.path}?filter[size][_gt]=5&fields=id"
    found = things.api.get(f"/utils/explain?path={encode(path)}").data
    assert found["statement"].startswith("SELECT r.c0, v.structure, v.access")
    assert found["parameters"] == ["5"]
    assert "Plan" in found["plan"][0]


def test_it_refuses_what_the_read_itself_would_refuse(things: Table) -> None:
    for path in (f"{things.path}?fields=nope", "/items/nowhere", "/collections", "/items/", ""):
        assert things.api.get(f"/utils/explain?path={path}").status in (400, 404), path


def test_it_is_for_administrators(things: Table, anonymous: Client) -> None:
    assert anonymous.get(f"/utils/explain?path={things.path}").codes == ["FORBIDDEN"]
