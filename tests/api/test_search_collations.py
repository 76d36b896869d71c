"""Searches in columns whose collation takes different texts for equal ones, as ICU has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cms.auth import accounts
from cms.config import Config
from cms.database.migrate import migrate
from cms.embedded.lifetime import start
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.things import Stage, Table, field, staged, table

pytestmark = pytest.mark.release

PROGRAM_FOLDERS = sorted(
    Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name)
)
COLLATION = (
    "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def stage(settings: Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage on a server with ICU, which the embedded one is built without."""
    if not PROGRAM_FOLDERS:
        pytest.skip("no PostgreSQL with ICU is installed")
    folder = tmp_path_factory.mktemp("icu")
    with start(folder, binaries=PROGRAM_FOLDERS[-1], settings={"fsync": "off"}) as server:
        copy = _copier(server.dsn)
        dsn = copy("template1")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(COLLATION)
        migrate(dsn)
        accounts.first_admin(dsn, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
        with staged(settings, copy, str(conninfo_to_dict(dsn)["dbname"])) as stage:
            yield stage


def _copier(server: str) -> Callable[[str], str]:
    def copy(template: str) -> str:
        name = f"collated_{next(_numbers)}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        return make_conninfo(server, dbname=name)

    return copy


@pytest.fixture
def things(stage: Stage) -> Table:
    fields = (field("title", "string"), field("body", "text"), field("note", "text"))
    things = table(stage.admin, *fields)
    stage.execute(
        f"ALTER TABLE {things.name} ALTER title TYPE varchar(255) COLLATE any_case, "
        "ALTER body TYPE text COLLATE any_case"
    )
    things.add(
        {"title": "Concat", "body": "a DOG"},
        {"title": "a Cat", "body": "É, é, dogs"},
        {"title": None, "body": None, "note": "cat"},
    )
    return things


def assert_found(things: Table) -> None:
    assert things.column("id", "search=cat") == [1, 2, 3]
    assert things.column("id", "search=CAT&sort=_relevance") == [2, 3, 1]
    assert things.column("id", "search=dog&sort=_relevance") == [1, 2]
    assert things.column("id", "search=cat+dog&sort=_relevance") == [1, 2]


def test_they_are_searched_like_others(things: Table) -> None:
    assert_found(things)
    marked = things.read("search=e&highlight=true&fields=id").data
    assert [item["_highlights"] for item in marked] == [
        {"body": "<mark>É</mark>, <mark>é</mark>, dogs"}
    ]


def test_they_have_indexes_like_others(stage: Stage, things: Table) -> None:
    searchable = {"meta": {"searchable": True}}
    answer = stage.admin.patch(f"/collections/{things.name}", searchable)
    assert answer.data["meta"]["search_index"]["state"] == "ready"
    assert_found(things)
    assert things.add({"title": "Cat", "body": "DOG dog"})[0]["id"] == 4
    assert things.column("id", "search=cat+dog&sort=_relevance") == [4, 1, 2]
    stage.execute(
        f"INSERT INTO {things.name} (title, body) SELECT md5(n::text), repeat('x', 100) "
        f"FROM generate_series(1, 20000) AS n; ANALYZE {things.name}"
    )
    explained = f"/utils/explain?path={things.path}?search=c4ca4238&fields=id"
    # Each text has an index that serves.
    assert "BitmapOr" in str(stage.admin.get(explained).data["plan"])
    best = "search=c4ca4238a0b923820dcc509a6f75849b&sort=_relevance"
    assert things.column("body", best) == ["x" * 100]


def test_an_index_that_another_collation_spoils_is_said_to_be_missing(
    stage: Stage, things: Table
) -> None:
    path = f"/collections/{things.name}"
    stage.admin.patch(path, {"meta": {"searchable": True}})
    stage.execute(f"ALTER TABLE {things.name} ALTER note TYPE text COLLATE any_case")
    assert_found(things)
    assert stage.admin.get(path).data["meta"]["search_index"]["state"] != "ready"
    answer = stage.admin.patch(path, {"meta": {"searchable": True}})
    assert answer.data["meta"]["search_index"]["state"] == "ready"
    assert_found(things)
    of_note = "SELECT count(*) FROM pg_indexes WHERE tablename = '{}' AND indexdef LIKE '%note%'"
    assert stage.value(of_note.format(things.name)) == 1
