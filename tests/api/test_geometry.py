"""Geometry with PostGIS: GeoJSON in and out, the operators, the index."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cms.auth import accounts
from cms.config import Config
from cms.database.migrate import migrate
from cms.embedded.lifetime import start
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.file_imports import post_file
from tests.members import may, member
from tests.things import Stage, Table, field, staged, table

pytestmark = pytest.mark.release

PROGRAM_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
WITH_POSTGIS = [
    postgis
    for postgis in PROGRAM_FOLDERS
    if Path(f"/usr/share/postgresql/{postgis.parent.name}/extension/postgis.control").exists()
]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def stage(settings: Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage on a server that has PostGIS, which the embedded one has not."""
    if not WITH_POSTGIS:
        pytest.skip("no PostgreSQL with PostGIS is installed")
    folder = tmp_path_factory.mktemp("postgis")
    with start(folder, binaries=WITH_POSTGIS[-1], settings={"fsync": "off"}) as server:
        template = _template(server.dsn)
        with staged(settings, _copier(server.dsn), template) as stage:
            yield stage


def _template(server: str) -> str:
    dsn = _copier(server)("template1")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION postgis")
    migrate(dsn)
    accounts.first_admin(dsn, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
    return str(conninfo_to_dict(dsn)["dbname"])


def _copier(server: str) -> Callable[[str], str]:
    def copy(template: str) -> str:
        name = f"geometry_{next(_numbers)}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        return make_conninfo(server, dbname=name)

    return copy


POINT = {"type": "Point", "coordinates": [12.5, 41.9]}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [0, 10], [10, 10], [10, 0], [0, 0]]]}
LINE = {"type": "LineString", "coordinates": [[0, 20], [20, 0]]}


@pytest.fixture
def shapes(admin: Client) -> Table:
    shapes = table(admin, field("shape", "geometry"), field("name", "string"))
    shapes.add(
        {"name": "point", "shape": POINT},
        {"name": "square", "shape": SQUARE},
        {"name": "line", "shape": LINE},
    )
    shapes.add({"name": "none"})
    return shapes


def test_geojson_comes_back_as_it_was_sent(shapes: Table) -> None:
    assert shapes.column("shape") == [POINT, SQUARE, LINE, None]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_exported_geometry_is_imported_again(shapes: Table, form: str) -> None:
    exported = shapes.get(export=form).text
    assert shapes.api.patch(shapes.path, {"query": {}, "data": {"shape": None}}).status == 200
    assert post_file(shapes, exported, form=form).data == {"created": 0, "updated": 4}
    assert shapes.column("shape") == [POINT, SQUARE, LINE, None]
    assert (
        post_file(shapes, 'shape\n"{""type"": ""Cube""}"\nnowhere\n').codes
        == ["INVALID_PAYLOAD"] * 2
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Point", POINT),
        ("LineString", LINE),
        ("Polygon", SQUARE),
        ("MultiPoint", {"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}),
        ("MultiLineString", {"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]]]}),
        ("MultiPolygon", {"type": "MultiPolygon", "coordinates": [SQUARE["coordinates"]]}),
    ],
)
def test_each_type_takes_its_own_shape_and_no_other(
    admin: Client, kind: str, value: object
) -> None:
    things = table(admin, field("shape", f"geometry.{kind}"))
    assert admin.get(f"/fields/{things.name}/shape").data["type"] == f"geometry.{kind}"
    assert things.add({"shape": value})[0]["shape"] == value
    other = LINE if kind == "Point" else POINT
    answer = admin.post(things.path, {"shape": other})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])


@pytest.mark.parametrize(
    "value", ["POINT(1 2)", 5, {"type": "Point"}, {"type": "Cube", "coordinates": []}, [1, 2]]
)
def test_what_is_no_geometry_is_refused(shapes: Table, value: object) -> None:
    answer = shapes.api.post(shapes.path, {"shape": value})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])


@pytest.mark.parametrize(
    ("operator", "operand", "names"),
    [
        ("_intersects", {"type": "Point", "coordinates": [5, 5]}, ["square"]),
        ("_nintersects", {"type": "Point", "coordinates": [5, 5]}, ["point", "line"]),
        ("_intersects", {"type": "Point", "coordinates": [10, 10]}, ["square", "line"]),
        # The line's box covers the corner that the line itself does not come near.
        ("_intersects_bbox", {"type": "Point", "coordinates": [1, 1]}, ["square", "line"]),
        ("_nintersects_bbox", {"type": "Point", "coordinates": [1, 1]}, ["point"]),
    ],
)
def test_the_operators_find_what_meets_a_geometry(
    shapes: Table, operator: str, operand: object, names: list[str]
) -> None:
    items = shapes.api.search(shapes.path, {"filter": {"shape": {operator: operand}}}).data
    assert [item["name"] for item in items] == names


def test_a_geometry_takes_no_equality_and_a_text_no_intersection(shapes: Table) -> None:
    for name, operator, operand in (
        ("shape", "_eq", POINT),
        ("name", "_intersects", POINT),
        ("shape", "_gt", 1),
    ):
        answer = shapes.api.search(shapes.path, {"filter": {name: {operator: operand}}})
        assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"]), answer


def test_nulls_are_distinguished(shapes: Table) -> None:
    assert shapes.column("name", "filter[shape][_null]=true") == ["none"]
    assert len(shapes.column("name", "filter[shape][_nnull]=true")) == 3


def test_an_index_of_a_geometry_serves_its_operators(stage: Stage, admin: Client) -> None:
    things = table(admin, field("shape", "geometry.Point", is_indexed=True))
    assert admin.get(f"/fields/{things.name}/shape").data["schema"]["is_indexed"]
    kinds = stage.value(
        f"SELECT string_agg(indexdef, ';') FROM pg_indexes WHERE tablename = '{things.name}'"
    )
    assert "USING gist" in kinds
    stage.execute(
        f"INSERT INTO {things.name} (shape) SELECT ST_SetSRID(ST_MakePoint(n % 179, n % 89), 4326)"
        f" FROM generate_series(1, 20000) AS n; ANALYZE {things.name}"
    )
    for operator in ("_intersects", "_intersects_bbox"):
        condition = quote(json.dumps({"shape": {operator: POINT}}))
        path = quote(f"{things.path}?fields=id&limit=-1&filter={condition}", safe="")
        assert "_shape_idx" in str(admin.get(f"/utils/explain?path={path}").data["plan"]), operator


def test_an_unreadable_operand_is_refused(shapes: Table) -> None:
    answer = shapes.api.search(
        shapes.path, {"filter": {"shape": {"_intersects": {"type": "Point"}}}}
    )
    assert (answer.status, answer.codes[0][:7]) == (400, "INVALID")


def test_without_postgis_a_geometry_field_is_refused_with_the_reason(api: Client) -> None:
    body = {
        "collection": "shapes",
        "schema": {},
        "fields": [{"field": "shape", "type": "geometry"}],
    }
    answer = api.post("/collections", body)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert "PostGIS" in answer.errors[0]["message"]
    assert api.get("/collections/shapes").status == 404


def test_rules_may_compare_with_a_geometry(stage: Stage, admin: Client) -> None:
    """Such a rule is no key of a cache; what it lets be is written all the same."""
    spots = table(admin, field("name", "string"), field("at", "geometry"))
    square = {"type": "Polygon", "coordinates": [[[0, 0], [0, 2], [2, 2], [2, 0], [0, 0]]]}
    inside, outside = (
        {"type": "Point", "coordinates": [coordinate, coordinate]} for coordinate in (1, 5)
    )
    rule = {"permissions": {"at": {"_intersects": square}}}
    caller = member(
        stage,
        *(
            may(spots.name, action=action, **rule)
            for action in ("create", "read", "update", "delete")
        ),
    )
    assert caller.post(spots.path, {"name": "a", "at": outside}).status == 403
    key = caller.post(spots.path, {"name": "a", "at": inside}).data["id"]
    assert caller.patch(f"{spots.path}/{key}", {"at": outside}).status == 403
    assert caller.patch(f"{spots.path}/{key}", {"name": "b"}).data["name"] == "b"
    assert caller.delete(f"{spots.path}/{key}").status == 204
