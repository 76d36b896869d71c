"""`cms doctor` names builds of indexes and checks that failed, and says what to do."""

from __future__ import annotations

import pytest

from cms.cli.structure_findings import OK, WARNING, structure_findings
from cms.config import Config
from cms.database.connections import Database
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import BUILDS_FAIL, FIELD, ask, indexed_words, work
from tests.waiting import eventually

pytestmark = pytest.mark.release

FIELD_B = "/fields/things/b"


def findings(dsn: str, level: str = WARNING) -> list[str]:
    return [
        one.text
        for one in structure_findings(dsn)
        if one.level == level and one.text.startswith("indexes")
    ]


def the_finding(dsn: str) -> str:
    (text,) = findings(dsn)
    return text


def wait_for(dsn: str, sentence: str) -> None:
    eventually(lambda: any(sentence in text for text in findings(dsn)))


@pytest.mark.usefixtures("worker")
def test_what_waits_is_no_finding(large: Client, dsn: str) -> None:
    ask(large)
    large.patch(FIELD_B, {"schema": {"is_unique": True}})
    assert findings(dsn) == []
    assert findings(dsn, OK) == ["indexes: all that were asked for are there, or are being built"]


def test_failed_indexes_of_fields_and_for_searches_are_named(large: Client, dsn: str) -> None:
    run_sql(dsn, BUILDS_FAIL)
    ask(large)
    wait_for(dsn, "the index of things.a could not be built")
    large.patch(FIELD, {"schema": {"is_indexed": False}})
    assert findings(dsn) == []
    large.patch("/collections/things", {"meta": {"searchable": True}})
    wait_for(dsn, "the indexes for searches in things are not there")


@pytest.mark.usefixtures("worker")
def test_violated_constraints_are_named(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    large.post("/items/things", [{"b": "secret"}, {"b": "secret"}])
    large.patch(FIELD_B, {"schema": {"is_unique": True}})
    work(config, job_database)
    assert "things.b cannot be unique, because items have equal values" in the_finding(dsn)
    assert "secret" not in the_finding(dsn)
    large.patch(FIELD_B, {"schema": {"is_unique": False}})
    large.post("/fields/things", {"field": "up", "type": "integer"})
    large.post("/items/things", {"up": 99})
    relation = {"collection": "things", "field": "up", "related_collection": "things"}
    large.post("/relations", relation)
    work(config, job_database)
    assert "items point to none by things.up" in the_finding(dsn)


def test_remains_of_builds_that_were_broken_off_are_named(large: Client, dsn: str) -> None:
    run_sql(dsn, "CREATE UNIQUE INDEX broken ON things (a)")
    run_sql(dsn, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'broken'::regclass")
    assert "broken of things is what a build has left" in the_finding(dsn)
    assert "and refuses values" in the_finding(dsn)
    run_sql(dsn, "DROP INDEX broken")
    assert findings(dsn) == []


def test_indexes_that_serve_no_search_any_more_are_named(large: Client, dsn: str) -> None:
    run_sql(dsn, f"CREATE INDEX of_words ON things {indexed_words('a', 'b')}")
    assert "of_words of things serves no search any more" in the_finding(dsn)
    large.patch("/collections/things", {"meta": {"searchable": True}})
    assert findings(dsn) == []
