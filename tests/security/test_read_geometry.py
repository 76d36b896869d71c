"""Values that PostGIS cannot compare reveal nothing of hidden rows; on a server
that has PostGIS, as in test_geometry.
"""

from __future__ import annotations

import pytest

from tests.api.test_geometry import LINE, SQUARE, stage
from tests.client import Client
from tests.members import may, member
from tests.things import Stage

pytestmark = pytest.mark.release

__all__ = ["stage"]

BOW_TIE = {"type": "Polygon", "coordinates": [[[0, 0], [10, 10], [10, 0], [0, 10], [0, 0]]]}
OVERLAPPING = {
    "type": "MultiPolygon",
    "coordinates": [
        [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]],
        [[[5, 5], [15, 5], [15, 15], [5, 15], [5, 5]]],
    ],
}
BOTH = {"type": "GeometryCollection", "geometries": [SQUARE, LINE]}
SHAPES = (SQUARE, LINE, BOW_TIE, OVERLAPPING, BOTH)
OPERATORS = ("_intersects", "_nintersects", "_intersects_bbox", "_nintersects_bbox")


def test_an_invalid_geometry_breaks_no_filter_whether_it_is_hidden_or_not(stage: Stage) -> None:
    """The rule follows relations, so that the database tries the filter first."""
    stage.execute(
        "CREATE TABLE towns (id integer PRIMARY KEY);"
        "CREATE TABLE spots (id integer PRIMARY KEY, town integer REFERENCES towns, "
        "place geometry(Geometry, 4326));"
        "INSERT INTO towns VALUES (1)"
    )
    relation = {
        "collection": "spots",
        "field": "town",
        "related_collection": "towns",
        "meta": {"one_field": "spots"},
    }
    assert stage.admin.post("/relations", relation).status == 200
    spots = [{"id": 1, "town": 1, "place": {"type": "Point", "coordinates": [1, 1]}}]
    assert stage.admin.post("/items/spots", spots).status == 200
    caller = member(
        stage, may("spots", permissions={"town": {"spots": {"_some": {"id": 1}}}}), may("towns")
    )
    before = rows_of(caller)
    for number, shape in enumerate((BOW_TIE, OVERLAPPING, BOTH)):
        assert stage.admin.post("/items/spots", {"id": number + 2, "place": shape}).status == 200
    assert rows_of(caller) == before
    assert {status for status, _ in rows_of(stage.admin)} == {200}


def rows_of(caller: Client) -> list[tuple[int, str]]:
    queries = [
        {"fields": ["id"], "filter": {"place": {name: shape}}}
        for name in OPERATORS
        for shape in SHAPES
    ]
    answers = [caller.search("/items/spots", query) for query in queries]
    return [(answer.status, answer.text) for answer in answers]


def test_a_collection_of_collections_is_refused(stage: Stage) -> None:
    stage.execute("CREATE TABLE nests (id integer PRIMARY KEY, place geometry(Geometry, 4326))")
    nested = {"type": "GeometryCollection", "geometries": [BOTH]}
    assert stage.admin.post("/items/nests", {"id": 1, "place": nested}).status == 400
    assert (
        stage.admin.search("/items/nests", {"filter": {"place": {"_intersects": nested}}}).status
        == 400
    )


def test_the_history_of_fields_that_a_geometry_decides_is_shown_where_it_holds(
    stage: Stage,
) -> None:
    stage.execute("CREATE TABLE camps (id integer PRIMARY KEY, place geometry(Geometry, 4326))")
    inside = {"type": "Point", "coordinates": [1, 1]}
    outside = {"type": "Point", "coordinates": [50, 50]}
    camps = [{"id": 1, "place": inside}, {"id": 2, "place": outside}]
    assert stage.admin.post("/items/camps", camps).status == 200
    nearby = may("camps", "place", permissions={"place": {"_intersects": SQUARE}})
    caller = member(stage, may("camps", "id"), nearby, may("system_revisions"))
    items = {item["id"]: item["place"] for item in caller.get("/items/camps").data}
    assert items == {1: inside, 2: None}
    revisions = caller.get("/revisions?filter[collection]=camps&fields=item,data")
    assert revisions.status == 200
    # No revision keeps geometries, so no rule can be tried on what one holds.
    assert {row["item"]: row["data"] for row in revisions.data} == {
        "1": {"id": 1},
        "2": {"id": 2},
    }
