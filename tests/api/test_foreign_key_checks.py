"""The foreign key of a new relation over a column of a large table is checked in the background."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import psycopg
import pytest

from cms.config import Config
from cms.database.connections import Database
from cms.structure import index_builds
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import CONSTRAINTS_LEFT, JOBS, work
from tests.waiting import eventually

pytestmark = pytest.mark.release

RELATION = {"collection": "things", "field": "other", "related_collection": "others"}
PATH = "/relations/things/other"
WAITING = {"state": "waiting", "progress": 0.0}
VIOLATED = {"state": "failed", "progress": 0.0, "code": "INVALID_FOREIGN_KEY"}
CHECKED = """
    SELECT convalidated FROM pg_constraint
    WHERE conrelid = to_regclass('things') AND contype = 'f'
"""
VALIDATING = """
    SELECT pid FROM pg_stat_activity
    WHERE query LIKE 'ALTER TABLE ONLY "things" VALIDATE%' AND state = 'active'
"""
CHECK_WAITS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def related(large: Client) -> Client:
    """The administrator's client, with a large collection "things" that points to "others"."""
    large.post("/collections", {"collection": "others", "schema": {}, "fields": []})
    large.post("/fields/things", {"field": "other", "type": "integer"})
    assert large.post("/items/others", [{}, {}]).status == 200
    assert large.post("/items/things", [{"other": 1}, {"other": None}]).status == 200
    return large


def relate(client: Client) -> Any:
    answer = client.post("/relations", RELATION)
    assert answer.status == 200, answer
    return answer.data["schema"]


def schema(client: Client) -> Any:
    return client.get(PATH).data["schema"]


@pytest.mark.usefixtures("worker")
def test_the_answer_comes_at_once_and_the_key_holds_for_new_items(
    related: Client, config: Config, job_database: Database, dsn: str
) -> None:
    assert relate(related)["foreign_key_check"] == WAITING
    listed = {record["field"]: record["schema"] for record in related.get("/relations").data}
    assert listed["other"]["foreign_key_check"] == WAITING
    answer = related.post("/items/things", {"other": 9})
    assert (answer.status, answer.codes) == (400, ["INVALID_FOREIGN_KEY"])
    assert run_sql(dsn, CHECKED) == [(False,)]
    work(config, job_database)
    assert "foreign_key_check" not in schema(related)
    assert run_sql(dsn, CHECKED) == [(True,)]
    assert run_sql(dsn, CONSTRAINTS_LEFT) == run_sql(dsn, JOBS) == []


def test_without_a_worker_the_process_itself_checks_it(related: Client, dsn: str) -> None:
    relate(related)
    eventually(lambda: run_sql(dsn, JOBS) == [])
    assert run_sql(dsn, CHECKED) == [(True,)]
    assert "foreign_key_check" not in schema(related)


@pytest.mark.usefixtures("worker")
def test_items_that_point_nowhere_are_told_until_they_are_changed(
    related: Client, config: Config, job_database: Database, dsn: str
) -> None:
    lost = related.post("/items/things", {"other": 9}).data["id"]
    relate(related)
    work(config, job_database)
    assert schema(related)["foreign_key_check"] == VIOLATED
    assert run_sql(dsn, JOBS) == [("failed",)]
    # It is an item without the other one, as where there is no key at all.
    assert related.get(f"/items/things/{lost}", fields="a,other.id").data["other"] is None
    assert related.patch(f"/items/things/{lost}", {"other": 2}).status == 200
    same = {"schema": {"on_delete": schema(related)["on_delete"]}}
    assert related.patch(PATH, same).data["schema"]["foreign_key_check"] == WAITING
    work(config, job_database)
    assert "foreign_key_check" not in schema(related)
    assert run_sql(dsn, CHECKED) == [(True,)]


@pytest.mark.usefixtures("worker")
def test_a_key_that_others_have_checked_by_hand_has_nothing_to_report(
    related: Client, config: Config, job_database: Database, dsn: str
) -> None:
    lost = related.post("/items/things", {"other": 9}).data["id"]
    relate(related)
    work(config, job_database)
    assert schema(related)["foreign_key_check"] == VIOLATED
    assert related.patch(f"/items/things/{lost}", {"other": 2}).status == 200
    run_sql(dsn, "ALTER TABLE things VALIDATE CONSTRAINT things_other_fkey")
    related.post("/utils/cache/clear")
    assert "foreign_key_check" not in schema(related)
    # What was noted goes with the next job of the table.
    assert related.patch("/fields/things/a", {"schema": {"is_indexed": True}}).status == 200
    work(config, job_database)
    assert run_sql(dsn, CONSTRAINTS_LEFT) == []


@pytest.mark.usefixtures("worker")
def test_writers_go_on_while_it_is_checked(
    related: Client,
    config: Config,
    job_database: Database,
    dsn: str,
) -> None:
    relate(related)
    # The index comes first.
    work(config, job_database)
    assert related.patch(PATH, {"schema": {"on_delete": "RESTRICT"}}).status == 200
    # The check needs a lock that this one holds, and stands for minutes of work.
    with psycopg.connect(dsn) as blocker:
        blocker.execute("LOCK TABLE things IN SHARE UPDATE EXCLUSIVE MODE")
        checker = Thread(target=work, args=(config, job_database))
        checker.start()
        eventually(lambda: run_sql(dsn, VALIDATING) != [])
        assert schema(related)["foreign_key_check"]["state"] == "building"
        assert related.post("/items/things", {"other": 2}).status == 200
        assert related.post("/items/others", {}).status == 200
        blocker.rollback()
    checker.join()
    assert run_sql(dsn, CHECKED) == [(True,)]


CHANGES = [
    ("POST", "/fields/things", {"field": "new", "type": "integer"}),
    ("POST", "/fields/others", {"field": "new", "type": "integer"}),
    ("PATCH", PATH, {"schema": {"on_delete": "CASCADE"}}),
    ("PATCH", "/fields/things/other", {"field": "another"}),
]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_either_table_interrupts_a_check_which_begins_anew(
    related: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    change: tuple[str, str, object],
) -> None:
    relate(related)
    work(config, job_database)
    # Checked anew, for as long as a lock is held: only the change can end the check before.
    slow = """
        CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
            IF current_query() LIKE 'ALTER TABLE ONLY%' THEN
                PERFORM pg_advisory_xact_lock(1);
            END IF;
        END $$;
        CREATE EVENT TRIGGER slow ON ddl_command_end EXECUTE FUNCTION slow()
    """
    run_sql(dsn, slow)
    assert related.patch(PATH, {"schema": {"on_delete": "RESTRICT"}}).status == 200
    with ThreadPoolExecutor(1) as executor, psycopg.connect(dsn) as blocker:
        blocker.execute("SELECT pg_advisory_xact_lock(1)")
        checker = Thread(target=work, args=(config, job_database))
        checker.start()
        eventually(lambda: run_sql(dsn, CHECK_WAITS) != [])
        run_sql(dsn, "ALTER EVENT TRIGGER slow DISABLE")
        changed = executor.submit(related.send, *change)
        eventually(lambda: run_sql(dsn, CHECK_WAITS) == [], seconds=20)
        blocker.rollback()
        assert changed.result().status == 200
    checker.join()
    # A key with another action is a new one, with a job of its own.
    work(config, job_database)
    assert run_sql(dsn, CHECKED) == [(True,)]
    assert run_sql(dsn, CONSTRAINTS_LEFT) == []


@pytest.mark.usefixtures("worker")
def test_a_key_that_is_gone_needs_no_check(
    related: Client, config: Config, job_database: Database, dsn: str
) -> None:
    relate(related)
    assert related.delete("/fields/things/other").status == 204
    assert run_sql(dsn, CONSTRAINTS_LEFT) == []
    related.post("/fields/things", {"field": "other", "type": "integer"})
    relate(related)
    run_sql(dsn, "ALTER TABLE things DROP CONSTRAINT things_other_fkey")
    work(config, job_database)
    assert run_sql(dsn, CONSTRAINTS_LEFT) == run_sql(dsn, JOBS) == []


@pytest.mark.usefixtures("worker")
def test_a_key_to_a_partitioned_collection_is_checked_as_one(
    related: Client, config: Config, job_database: Database, dsn: str
) -> None:
    run_sql(
        dsn,
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (2);"
        "CREATE TABLE high PARTITION OF parts FOR VALUES FROM (2) TO (9);"
        "INSERT INTO parts VALUES (1), (2); INSERT INTO things (other) VALUES (2)",
    )
    related.post("/utils/cache/clear")
    answer = related.post("/relations", {**RELATION, "related_collection": "parts"})
    assert answer.data["schema"]["foreign_key_check"] == WAITING
    work(config, job_database)
    assert "foreign_key_check" not in schema(related)
    assert run_sql(dsn, CONSTRAINTS_LEFT) == run_sql(dsn, JOBS) == []


@pytest.mark.usefixtures("worker")
def test_an_action_that_changes_during_the_check_has_the_new_key_checked(
    related: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relate(related)
    check = index_builds.ForeignKeyCheck.run
    changes = [{"schema": {"on_delete": "CASCADE"}}]

    def change_behind(key: index_builds.ForeignKeyCheck, database: Database) -> None:
        check(key, database)
        if changes:
            assert related.patch(PATH, changes.pop()).status == 200

    monkeypatch.setattr(index_builds.ForeignKeyCheck, "run", change_behind)
    work(config, job_database)
    work(config, job_database)
    assert run_sql(dsn, CHECKED) == [(True,)]
    assert run_sql(dsn, CONSTRAINTS_LEFT) == run_sql(dsn, JOBS) == []


@pytest.mark.usefixtures("worker")
def test_what_is_asked_for_again_during_a_check_that_fails_is_checked_again(
    related: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = related.post("/items/things", {"other": 9}).data["id"]
    relate(related)
    check = index_builds.ForeignKeyCheck.run
    changes = [{"other": 2}]

    def fail_and_change(key: index_builds.ForeignKeyCheck, database: Database) -> None:
        try:
            check(key, database)
        finally:
            while changes:
                assert related.patch(f"/items/things/{lost}", changes.pop()).status == 200
                same = {"schema": {"on_delete": schema(related)["on_delete"]}}
                assert related.patch(PATH, same).status == 200

    monkeypatch.setattr(index_builds.ForeignKeyCheck, "run", fail_and_change)
    work(config, job_database)
    # For the second request there is a job of its own.
    work(config, job_database)
    assert run_sql(dsn, CHECKED) == [(True,)]
    assert run_sql(dsn, CONSTRAINTS_LEFT) == run_sql(dsn, JOBS) == []


@pytest.mark.usefixtures("worker")
def test_types_for_clients_say_that_items_may_point_nowhere_until_all_are_checked(
    related: Client, config: Config, job_database: Database
) -> None:
    required = {"is_nullable": False, "default_value": 1}
    body = {"field": "other_one", "type": "integer", "schema": required}
    assert related.post("/fields/things", body).status == 200
    relation = {**RELATION, "field": "other_one"}
    assert related.post("/relations", relation).status == 200
    types = "/server/specs/types?language=typescript"
    assert "other_one: number | Others | null" in related.get(types).text
    work(config, job_database)
    assert "other_one: number | Others;" in related.get(types).text
