"""Collections and workers that tests of several modules use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cms.config import Config
from cms.database.connections import Database
from cms.structure import indexes
from tests.api.nesting import make_relations
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import WORKER, IndexBuilder
from tests.shop import fill_shop, make_shop
from tests.things import Stage, Table, staged


@pytest.fixture(scope="module")
def nested_collections(stage: Stage) -> None:
    """The collections of `tests.api.nesting`, with every kind of relation."""
    make_relations(stage.admin)


@pytest.fixture(scope="module")
def shop_tables(stage: Stage) -> None:
    """The tables of `tests.shop`, with keys and foreign keys of several columns."""
    make_shop(stage)


@pytest.fixture
def shop(stage: Stage, shop_tables: None) -> None:
    """The tables of `tests.shop` with their first rows, whatever tests before have written."""
    fill_shop(stage)


@pytest.fixture(scope="module")
def other_stage(
    stage_settings: Config, make_database: Callable[..., str], template: str
) -> Iterator[Stage]:
    """A second installation with nothing but its administrator."""
    with staged(stage_settings, make_database, template) as stage:
        yield stage


@pytest.fixture
def things(request: pytest.FixtureRequest, stage: Stage) -> Table:
    """The collection with the fields that the test's module names in `THINGS`, without items."""
    return stage.empty_table(*request.module.THINGS)


@pytest.fixture
def flows_of_the_test(admin: Client) -> Iterator[None]:
    """Delete the flows that a test has made: they would run in the tests after it."""
    yield
    flows = [flow["id"] for flow in admin.get("/flows", fields="id").data]
    assert admin.delete("/flows", flows).status == 204


@pytest.fixture
def shell(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Runs `cms` in a folder of its own, on the database of the stage."""
    monkeypatch.chdir(tmp_path)
    return CliRunner(env={"DATABASE_URL": stage.dsn, "SECRET": "only-for-tests-" * 3})


@pytest.fixture
def job_database(config: Config) -> Iterator[Database]:
    """The connections of a worker that does the jobs of a test."""
    database = Database(config)
    yield database
    database.close()


@pytest.fixture
def worker(dsn: str) -> None:
    """A worker of the queue, which takes no job until `work` does it in its place."""
    run_sql(dsn, WORKER)


@pytest.fixture
def builder(worker: None, config: Config, job_database: Database, dsn: str) -> IndexBuilder:
    """That worker, with all that its work needs."""
    return IndexBuilder(config, job_database, dsn)


@pytest.fixture
def large(api: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The administrator's client, with a collection "things" of two fields that counts as large."""
    fields = [{"field": name, "type": "string"} for name in "ab"]
    body = {"collection": "things", "schema": {}, "fields": fields}
    assert api.post("/collections", body).status == 200
    monkeypatch.setattr(indexes, "LARGE_BYTES", -1)
    return api
