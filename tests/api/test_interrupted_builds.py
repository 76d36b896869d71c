"""Changes of structure interrupt builds of indexes in the background, which begin anew."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cms.database.connections import Database
from cms.database.server_refusals import Canceled
from cms.errors import unavailable
from cms.structure import index_builds, index_requests, indexes
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import (
    DROP_WAITS,
    FIELD,
    GIVE_UP,
    INDEXED,
    INVALID,
    REQUESTED,
    TAKE_SNAPSHOT,
    IndexBuilder,
    ask,
    assert_indexed,
    before_each_build,
    behind_each_build,
    schema,
    set_for_database,
    state,
    wait_for_state,
)
from tests.waiting import eventually

pytestmark = pytest.mark.release

WAITING_FOR_LOCK = """
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
BUILDING = "SELECT count(*) FROM pg_stat_progress_create_index"
TO_OTHERS = {"collection": "things", "field": "other", "related_collection": "others"}
FROM_OTHERS = {"collection": "others", "field": "thing", "related_collection": "things"}


@pytest.mark.parametrize(("method", "body"), [("PATCH", GIVE_UP), ("DELETE", None)])
def test_giving_up_ends_a_build_that_runs(
    large: Client,
    builder: IndexBuilder,
    dsn: str,
    method: str,
    body: object,
) -> None:
    ask(large)
    ask(large, "/fields/things/b")
    with builder.delayed_by_snapshot():
        wait_for_state(large, "building")
        assert large.send(method, FIELD, body).status in (200, 204)
        wait_for_state(large, "building", "/fields/things/b")
    assert_indexed(dsn, "b")


CHANGES = [
    ("POST", "/fields/things", {"field": "new", "type": "integer"}),
    ("PATCH", FIELD, {"type": "text"}),
    ("PATCH", "/fields/things/b", {"type": "text"}),
    ("PATCH", "/fields/things/b", {"schema": {"is_unique": True, "comment": "x"}}),
    ("PATCH", "/fields/things/b", {"field": "c"}),
    ("DELETE", "/fields/things/b", None),
    ("PATCH", "/collections/things", {"schema": {"comment": "x"}}),
    ("POST", "/relations", TO_OTHERS),
    ("PATCH", "/relations/others/thing", {"schema": {"on_delete": "CASCADE"}}),
    ("DELETE", "/collections/others", None),
]


@pytest.fixture
def no_deadlocks(dsn: str) -> None:
    """Have PostgreSQL look for deadlocks so late that none helps a change which waits for a build.

    Such a change is ended by DB_STATEMENT_TIMEOUT.
    """
    set_for_database(dsn, "deadlock_timeout", "10min")


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_table_interrupts_a_build_which_begins_anew(
    large: Client,
    builder: IndexBuilder,
    dsn: str,
    change: tuple[str, str, object],
) -> None:
    method, path, body = change
    others = [{"field": "thing", "type": "integer"}]
    large.post("/collections", {"collection": "others", "schema": {}, "fields": others})
    large.post("/fields/things", {"field": "other", "type": "integer"})
    large.post("/relations", FROM_OTHERS)
    if path != "/relations":
        large.post("/relations", TO_OTHERS)
    builder.work()
    ask(large)
    with builder.delayed_by_snapshot():
        wait_for_state(large, "building")
        assert large.send(method, path, body).status in (200, 204)
        wait_for_state(large, "building")
    assert state(large) == "ready"
    assert run_sql(dsn, INVALID) == [(0,)]


LIMITS = """
    SELECT name FROM pg_settings WHERE name IN (
        'statement_timeout', 'lock_timeout', 'transaction_timeout',
        'idle_in_transaction_session_timeout'
    )
"""


def test_time_limits_of_the_server_end_no_build(
    large: Client, builder: IndexBuilder, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[None] = []
    before_each_build(monkeypatch, lambda: builds.append(None))
    ask(large)
    limits = [name for (name,) in run_sql(dsn, LIMITS)]
    with ThreadPoolExecutor(1) as executor, psycopg.connect(dsn) as writer:
        writer.execute("INSERT INTO things (a) VALUES ('x')")
        for name in limits:
            set_for_database(dsn, name, "1s")
        work = executor.submit(builder.work)
        wait_for_state(large, "building")
        # Begun after the build, and under the same limits, whichever is the first to end it.
        with pytest.raises((psycopg.errors.QueryCanceled, psycopg.errors.TransactionTimeout)):
            run_sql(dsn, "SELECT pg_sleep(60)")
        writer.rollback()
        work.result(60)
    assert builds == [None]
    assert_indexed(dsn, "a")


@pytest.mark.parametrize(
    "build",
    [
        "CREATE INDEX CONCURRENTLY ON things (a)",
        'CREATE INDEX CONCURRENTLY of_others ON "things" ("a")',
        "REINDEX TABLE CONCURRENTLY things",
    ],
)
def test_a_change_interrupts_no_build_of_other_programs(
    large: Client, job_database: Database, dsn: str, build: str
) -> None:
    assert schema(large)["is_indexed"] is False
    with ThreadPoolExecutor(1) as executor:
        with psycopg.connect(dsn) as writer:
            writer.execute("INSERT INTO things (a) VALUES ('x')")
            built = executor.submit(run_sql, dsn, build)
            eventually(lambda: run_sql(dsn, BUILDING) == [(1,)])
            with job_database.transaction() as transaction:
                index_requests.interrupt_builds(transaction, "things")
        assert built.exception() is None
    assert run_sql(dsn, INVALID) == [(0,)]


def test_a_change_interrupts_builds_of_roles_that_the_service_acts_for(
    large: Client, job_database: Database, dsn: str
) -> None:
    run_sql(
        dsn,
        "DROP ROLE IF EXISTS other_builder; CREATE ROLE other_builder LOGIN;"
        "GRANT CREATE ON SCHEMA public TO other_builder; ALTER TABLE things OWNER TO other_builder",
    )
    other = make_conninfo(dsn, user="other_builder")
    with ThreadPoolExecutor(1) as executor, psycopg.connect(dsn) as writer:
        writer.execute("INSERT INTO things (a) VALUES ('x')")
        built = executor.submit(run_sql, other, 'CREATE INDEX CONCURRENTLY ON "things" ("a")')
        eventually(lambda: run_sql(dsn, BUILDING) == [(1,)])
        with job_database.transaction() as transaction:
            index_requests.interrupt_builds(transaction, "things")
        assert isinstance(built.exception(10), psycopg.errors.QueryCanceled)
    assert schema(large)["is_indexed"] is False
    run_sql(dsn, "DROP OWNED BY other_builder; DROP ROLE other_builder")


def test_a_collection_is_deleted_while_its_index_is_built(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    with builder.delayed_by_snapshot():
        wait_for_state(large, "building")
        assert large.delete("/collections/things").status == 204
    assert_indexed(dsn)


def test_what_is_given_up_as_its_build_begins_is_dropped(
    large: Client,
    builder: IndexBuilder,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask(large)
    before_each_build(monkeypatch, partial(large.patch, FIELD, GIVE_UP))
    builder.work()
    assert_indexed(dsn)
    assert schema(large)["is_indexed"] is False


def test_what_is_interrupted_behind_its_build_is_not_built_again(
    large: Client,
    builder: IndexBuilder,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask(large)
    build = indexes.DeferredIndex.build
    builds = 0

    def interrupted_late(index: indexes.DeferredIndex, database: Database) -> str | None:
        nonlocal builds
        builds += 1
        oid = build(index, database)
        if builds == 1:
            raise Canceled(unavailable("database", "interrupted").problems)
        return oid

    monkeypatch.setattr(indexes.DeferredIndex, "build", interrupted_late)
    builder.work()
    assert_indexed(dsn, "a")


def test_a_builder_waits_for_a_long_change_of_structure(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    impatient = replace(builder.config, db_statement_timeout=timedelta(milliseconds=500))
    database = Database(impatient)
    with ThreadPoolExecutor(1) as executor, psycopg.connect(dsn) as reader:
        reader.execute(TAKE_SNAPSHOT)
        ((job,),) = run_sql(dsn, "SELECT id FROM procrastinate_jobs WHERE task_name = 'build'")
        build = executor.submit(index_builds.build, database, job)
        wait_for_state(large, "building")
        with psycopg.connect(dsn) as changer:
            changer.execute("SELECT FROM system_version FOR UPDATE")
            changer.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_progress_create_index")
            reader.rollback()
            eventually(lambda: run_sql(dsn, WAITING_FOR_LOCK) != [])
            changer.execute("SET statement_timeout = '500ms'; SAVEPOINT s")
            with pytest.raises(psycopg.errors.QueryCanceled):  # as the wait, if it had a limit
                changer.execute("SELECT pg_sleep(60)")
            changer.execute("ROLLBACK TO s")
        build.result()
    database.close()
    assert [name for (name,) in run_sql(dsn, INDEXED)] == ["a"]


def test_a_field_that_is_renamed_while_its_index_is_built_gets_it(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    with builder.delayed_by_snapshot():
        wait_for_state(large, "building")
        assert large.patch(FIELD, {"field": "c"}).status == 200
    assert_indexed(dsn, "c")


WITHDRAW = "UPDATE procrastinate_jobs SET args = '{}'"
RENAME = """
    UPDATE procrastinate_jobs SET args = jsonb_set(args, '{payload,field}', '"c"');
    CREATE INDEX by_hand ON things (c)
"""


@pytest.mark.parametrize(("change", "indexed"), [(WITHDRAW, []), (RENAME, ["c"])])
def test_what_a_rename_has_broken_off_is_gone_though_nobody_builds_it_again(
    large: Client, builder: IndexBuilder, dsn: str, change: str, indexed: list[str]
) -> None:
    ask(large)
    with builder.delayed_by_snapshot():
        eventually(lambda: run_sql(dsn, INVALID) == [(1,)])
        # As a change of structure does it; the builder goes on behind it.
        with psycopg.connect(dsn) as changer:
            changer.execute("SELECT FROM system_version FOR UPDATE")
            cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_progress_create_index"
            run_sql(dsn, f"{cancel}; ALTER TABLE things RENAME a TO c")
            run_sql(dsn, change)
    assert [name for (name,) in run_sql(dsn, INDEXED)] == indexed
    assert run_sql(dsn, INVALID) == [(0,)]
    assert run_sql(dsn, REQUESTED) == []


def test_a_field_that_is_renamed_there_and_back_while_its_index_is_built_gets_it(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    with builder.delayed_by_snapshot():
        wait_for_state(large, "building")
        other = "/fields/things/c"
        assert large.patch(FIELD, {"field": "c"}).status == 200
        wait_for_state(large, "building", other)
        assert large.patch(other, {"field": "a"}).status == 200
        wait_for_state(large, "building")
    assert_indexed(dsn, "a")


RENAMES = [("a", "c"), ("b", "a")]


@pytest.mark.parametrize("step", [before_each_build, behind_each_build])
@pytest.mark.parametrize("jobs_before", [0, 1])
def test_fields_that_exchange_their_names_beside_a_build_have_one_index_each(
    large: Client,
    builder: IndexBuilder,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[[pytest.MonkeyPatch, Callable[[], object]], None],
    jobs_before: int,
) -> None:
    ask(large, "/fields/things/b")
    for _ in range(jobs_before):
        builder.work()
    ask(large)
    renames = list(RENAMES)

    def rename() -> None:
        while renames:
            before, after = renames.pop(0)
            assert large.patch(f"/fields/things/{before}", {"field": after}).status == 200

    step(monkeypatch, rename)
    builder.work()
    assert_indexed(dsn, "a", "c")


@pytest.mark.parametrize("change", [{"field": "c"}, {"type": "text"}])
def test_a_field_that_changes_behind_its_build_keeps_the_index(
    large: Client,
    builder: IndexBuilder,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
) -> None:
    ask(large)
    builds: list[None] = []

    def change_once() -> None:
        if not builds:
            assert large.patch(FIELD, change).status == 200
        builds.append(None)

    behind_each_build(monkeypatch, change_once)
    builder.work()
    assert len(builds) == 1
    assert_indexed(dsn, change.get("field", "a"))


def test_what_is_given_up_is_dropped_without_holding_up_others(
    large: Client, builder: IndexBuilder, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(large)
    with ThreadPoolExecutor(1) as executor, psycopg.connect(dsn) as reader:

        def give_up_and_read() -> None:
            assert large.patch(FIELD, GIVE_UP).status == 200
            reader.execute("SELECT FROM things")

        before_each_build(monkeypatch, give_up_and_read)
        work = executor.submit(builder.work)
        eventually(lambda: run_sql(dsn, DROP_WAITS) != [])
        assert large.get("/items/things").status == 200
        assert large.patch("/collections/things", {"meta": {"note": "x"}}).status == 200
        assert not work.done()
        reader.rollback()
        work.result(60)
    assert_indexed(dsn)


def test_a_change_of_several_tables_interrupts_what_has_begun_since_its_beginning(
    large: Client,
    builder: IndexBuilder,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[None] = []
    before_each_build(monkeypatch, lambda: begun.append(None))
    ask(large)
    with ThreadPoolExecutor(1) as executor, psycopg.connect(dsn) as reader:
        with job_database.transaction() as transaction:
            index_requests.interrupt_builds(transaction, "others")
            reader.execute(TAKE_SNAPSHOT)
            work = executor.submit(builder.work)
            wait_for_state(large, "building")
            index_requests.interrupt_builds(transaction, "things")
            eventually(lambda: len(begun) == 2, seconds=10)
        reader.rollback()
        work.result(60)
    assert_indexed(dsn, "a")
