"""Several installations in one database, each in a schema of its own, do not notice each other."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pytest

from cms.app import create_app
from cms.auth import accounts
from cms.cli.backup import back_up, restore
from cms.cli.structure_findings import structure_findings
from cms.config import Config, in_schema
from cms.config.secret_file import secret_of
from cms.database.connections import Database, standalone_transaction
from cms.database.migrate import MigrationError, migrate, pending
from cms.database.own_schema import check_schema, create_schema, schema_of
from cms.database.session_setup import pool_arguments
from cms.database.statements import all_statements, statement
from cms.errors import Refused
from cms.jobs.job_worker import drain
from cms.jobs.queue import channel_of_schema
from cms.jobs.task import Job, Task, defer
from cms.query.sql.locks import lock_collection
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.databases import UNTIL_NOW, channels_until_now, drop_database, run_sql
from tests.unit.library import LIBRARY

pytestmark = pytest.mark.release

NAMES = ("blue", "green")
TEXT = {"field": "text", "type": "string", "schema": {"is_indexed": True}}


@dataclass(frozen=True)
class Tenant:
    """One installation: its address, its settings and its administrator."""

    dsn: str
    config: Config
    admin: Client
    token: str

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        return run_sql(self.dsn, sql)

    def fingerprint(self) -> object:
        ((_, fingerprint),) = self.execute(statement("find_fingerprint"))
        return fingerprint


def tenant(name: str, dsn: str, settings: Config, folder: Path) -> Tenant:
    address = in_schema(dsn, name)
    migrate(address)
    accounts.first_admin(address, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
    config = replace(
        settings,
        database_url=address,
        database_schema=name,
        database_pool_size=2,
        data_dir=folder / name,
    )
    config.data_dir.mkdir()
    token = accounts.admin_token(address, secret=secret_of(settings), life=timedelta(minutes=30))
    return Tenant(address, config, Client(create_app(config), token), token)


@pytest.fixture(scope="module")
def shared_dsn(make_database: Callable[..., str]) -> Iterator[str]:
    dsn = make_database()
    yield dsn
    drop_database(dsn)


@pytest.fixture(scope="module")
def tenants(
    shared_dsn: str, settings: Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Tenant, Tenant]]:
    """Two installations, with a collection of the same name."""
    folder = tmp_path_factory.mktemp("tenants")
    blue, green = (tenant(name, shared_dsn, settings, folder) for name in NAMES)
    for one in (blue, green):
        fields = [TEXT]
        one.admin.post("/collections", {"collection": "notes", "schema": {}, "fields": fields})
    yield blue, green
    blue.admin.close()
    green.admin.close()


Tenants = tuple[Tenant, Tenant]


def test_a_schema_that_is_missing_is_created(empty_dsn: str) -> None:
    address = in_schema(empty_dsn, "blue")
    assert len(pending(address)) > 20
    assert len(migrate(address)) > 20
    assert pending(address) == []
    with psycopg.connect(empty_dsn) as connection:
        schemas = connection.execute("SELECT DISTINCT schemaname FROM pg_tables").fetchall()
        homes = connection.execute(
            "SELECT DISTINCT nspname FROM pg_extension JOIN pg_namespace ON extnamespace ="
            " pg_namespace.oid WHERE extname <> 'plpgsql'"
        ).fetchall()
    assert {schema for (schema,) in schemas} - {"pg_catalog", "information_schema"} == {"blue"}
    # In the schema of one installation they would end with it.
    assert homes == [("public",)]


def test_pending_migrations_are_not_those_of_another_installation(empty_dsn: str) -> None:
    migrate(empty_dsn)
    assert len(pending(in_schema(empty_dsn, "blue"))) > 20


def test_each_has_collections_items_and_keys_of_its_own(tenants: Tenants) -> None:
    blue, green = tenants
    assert blue.admin.post("/items/notes", [{"text": "a"}, {"text": "b"}]).status == 200
    assert green.admin.post("/items/notes", {"text": "c"}).data["id"] == 1
    assert [item["text"] for item in blue.admin.get("/items/notes").data] == ["a", "b"]
    assert [item["text"] for item in green.admin.get("/items/notes").data] == ["c"]
    blue.admin.post("/collections", {"collection": "only_blue", "schema": {}})
    assert blue.admin.get("/items/only_blue").data == []
    assert green.admin.get("/items/only_blue").status == 404


def test_each_has_users_of_its_own(tenants: Tenants) -> None:
    blue, green = tenants
    blue.admin.post("/users", {"email": "only@blue.example", "password": "secret-of-blue"})
    login = {"email": "only@blue.example", "password": "secret-of-blue"}
    assert blue.admin.post("/auth/login", login).status == 200
    assert green.admin.post("/auth/login", login).status == 401
    # With one secret a token is well signed for both; its user is nobody in the other one.
    stranger = green.admin.bearing(blue.token)
    assert stranger.get("/users/me").status == 401


def test_changes_move_the_counters_of_one_alone(tenants: Tenants) -> None:
    blue, green = tenants
    counters = "SELECT structure, access, flows FROM system_version"
    before = green.execute(counters)
    flow = {"name": "F", "trigger": "manual", "options": {"collections": ["notes"]}}
    for answer in (
        blue.admin.post("/fields/notes", {"field": "more", "type": "string"}),
        blue.admin.post("/roles", {"name": "Writers"}),
        blue.admin.post("/flows", flow),
    ):
        assert answer.status == 200, answer
    assert green.execute(counters) == before


def lock_statements() -> list[str]:
    names = [name for name, text in all_statements().items() if "_advisory_" in text]
    assert len(names) > 8
    return [name for name in names if name != "lock_database"]


@pytest.mark.parametrize("name", lock_statements())
def test_nobody_waits_for_a_lock_of_another_installation(tenants: Tenants, name: str) -> None:
    require_own_lock(tenants, statement(name))


def test_nor_for_that_of_a_singleton(tenants: Tenants) -> None:
    text, _ = lock_collection(LIBRARY.collections["books"]).numbered()
    require_own_lock(tenants, text)


@pytest.mark.parametrize(
    "call", ["system_make_partitions(1)", "system_prune_history(interval '1 month')"]
)
def test_nor_for_that_of_maintenance(tenants: Tenants, call: str) -> None:
    require_own_lock(tenants, f"SELECT {call}")


def require_own_lock(tenants: Tenants, text: str) -> None:
    """Run a statement in both, while the transaction of the first one stays open."""
    values = ["same"] * len(set(re.findall(r"\$\d", text)))
    blue, green = tenants
    with (
        psycopg.connect(blue.dsn, cursor_factory=psycopg.RawCursor) as first,
        psycopg.connect(green.dsn, cursor_factory=psycopg.RawCursor) as second,
    ):
        second.execute("SET lock_timeout = '200ms'")
        row = first.execute(text.encode(), values).fetchone()
        advisory_locks = first.execute(
            "SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted"
        )
        assert advisory_locks.rowcount == 1
        assert second.execute(text.encode(), values).fetchone() == row
        first.rollback()
        second.rollback()


def test_what_one_changes_is_no_foreign_change_to_the_other(
    tenants: Tenants, shared_dsn: str
) -> None:
    blue, green = tenants
    before = green.fingerprint()
    blue.execute(
        "CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN short AS text CHECK (length(VALUE) < 9);"
        "CREATE TABLE parents (id integer PRIMARY KEY, mood mood, name short);"
        "CREATE TABLE children (parent integer REFERENCES parents ON DELETE CASCADE);"
        "CREATE TABLE heirs () INHERITS (parents)"
    )
    migrate(in_schema(shared_dsn, "red"))
    assert green.fingerprint() == before
    green.execute("CREATE TABLE one_more (id integer PRIMARY KEY)")
    assert green.fingerprint() != before


def test_tables_elsewhere_that_go_with_ours_are_a_change(tenants: Tenants) -> None:
    _, green = tenants
    green.execute("CREATE SCHEMA elsewhere")
    fingerprints = [green.fingerprint()]
    for change in (
        "CREATE TABLE elsewhere.a (id integer PRIMARY KEY, note integer"
        " REFERENCES notes ON DELETE CASCADE)",
        # Rows of this one go with those of the first, and so with ours.
        "CREATE TABLE elsewhere.b (a integer REFERENCES elsewhere.a ON DELETE CASCADE)",
        "CREATE TABLE elsewhere.c () INHERITS (elsewhere.a)",
        "CREATE TYPE elsewhere.kind AS ENUM ('one')",
    ):
        green.execute(change)
        assert green.fingerprint() not in fingerprints, change
        fingerprints.append(green.fingerprint())


def test_the_history_of_a_deletion_has_no_rows_of_the_other(tenants: Tenants) -> None:
    blue, green = tenants
    for one in (blue, green):
        one.execute(
            "CREATE TABLE IF NOT EXISTS up (id integer PRIMARY KEY);"
            "CREATE TABLE IF NOT EXISTS down (id integer PRIMARY KEY,"
            " up integer REFERENCES up ON DELETE CASCADE);"
            "INSERT INTO up VALUES (7); INSERT INTO down VALUES (70, 7)"
        )
        one.admin.post("/utils/cache/clear")
    assert blue.admin.delete("/items/up/7").status == 204
    deletions = (
        "SELECT collection, item FROM system_activity WHERE action = 'delete'"
        " AND collection IN ('up', 'down') ORDER BY collection"
    )
    assert blue.execute(deletions) == [("down", "70"), ("up", "7")]
    assert green.execute(deletions) == []
    assert green.execute("SELECT id FROM down") == [(70,)]


def test_jobs_are_done_by_the_worker_of_their_installation(tenants: Tenants) -> None:
    done: list[tuple[str, object]] = []
    databases = [Database(one.config) for one in tenants]
    for database, name in zip(databases, NAMES, strict=True):
        with database.transaction() as transaction:
            defer(transaction.execute, "noted", {"of": name})
    for one, database, name in zip(tenants, databases, NAMES, strict=True):

        def run(job: Job, name: str = name) -> None:
            done.append((name, job.payload["of"]))

        drain(one.config, database, [Task("noted", run)])
        database.close()
    assert done == [("blue", "blue"), ("green", "green")]


def test_a_job_wakes_the_workers_of_its_installation_alone(tenants: Tenants) -> None:
    blue, green = tenants
    with psycopg.connect(blue.dsn, autocommit=True) as listening:
        listening.execute(f"LISTEN {UNTIL_NOW}".encode())
        for channel in ("procrastinate_any_queue_v1", "procrastinate_queue_v1#noted"):
            listening.execute(f'LISTEN "{channel_of_schema(channel, "blue")}"'.encode())
        for one in (green, blue):
            with standalone_transaction(one.dsn) as transaction:
                defer(transaction.execute, "noted", {})
        assert len(channels_until_now(listening, blue.dsn)) == 2
    for one in (green, blue):
        one.execute("DELETE FROM procrastinate_jobs")


@pytest.mark.release
def test_a_backup_holds_and_replaces_one_of_them(tenants: Tenants, tmp_path: Path) -> None:
    blue, green = tenants
    blue.admin.post("/items/notes", {"text": "kept"})
    green.admin.post("/items/notes", {"text": "of green"})
    archive = str(tmp_path / "blue.cms")
    assert back_up(blue.config, archive) == 0
    blue.admin.post("/items/notes", {"text": "lost"})
    green.admin.post("/items/notes", {"text": "later"})
    texts = "SELECT text FROM notes ORDER BY id"
    expected = green.execute(texts)
    assert restore(blue.config, archive, replaces=True) == 0
    assert blue.execute(texts)[-1] == ("kept",)
    assert green.execute(texts) == expected
    # Both go on: the counters have moved, and the green service noticed nothing.
    assert blue.admin.post("/items/notes", {"text": "after"}).status == 200
    assert green.admin.get("/items/notes?search=later&fields=text").data == [{"text": "later"}]


@pytest.mark.release
def test_a_backup_comes_back_in_another_database(
    tenants: Tenants, empty_dsn: str, tmp_path: Path
) -> None:
    blue, _ = tenants
    archive = str(tmp_path / "blue.cms")
    assert back_up(blue.config, archive) == 0
    address = in_schema(empty_dsn, "blue")
    assert restore(replace(blue.config, database_url=address), archive, replaces=False) == 0
    moved = replace(blue, dsn=address)
    texts = "SELECT text FROM notes ORDER BY id"
    assert moved.execute(texts) == blue.execute(texts)


def test_an_index_for_searches_is_built_in_each(tenants: Tenants) -> None:
    for one in tenants:
        answer = one.admin.patch("/collections/notes", {"meta": {"searchable": True}})
        assert answer.status == 200, answer
        indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema()"
        assert any("trgm" in text for (text,) in one.execute(indexes))


def test_a_session_in_another_schema_is_refused(shared_dsn: str, tenants: Tenants) -> None:
    # As behind a pooler that leaves out the options of the address.
    with (
        psycopg.connect(shared_dsn) as connection,
        pytest.raises(Refused, match="the schema public, not in blue"),
    ):
        check_schema(connection, "blue")


def test_a_schema_that_would_hide_the_installation_in_public_is_not_made(
    dsn: str, make_database: Callable[..., str]
) -> None:
    with psycopg.connect(dsn) as connection:
        role = connection.info.user
    with pytest.raises(MigrationError, match="would hide the installation in the schema public"):
        migrate(in_schema(dsn, role))
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT current_schemas(false)").fetchone() == (["public"],)
    # Where there is no such installation, the name is as good as any other.
    empty = make_database()
    migrate(in_schema(empty, role))
    drop_database(empty)


def test_behind_an_empty_schema_nobody_finds_the_tables_of_another(dsn: str) -> None:
    address = in_schema(dsn, "blue")
    with psycopg.connect(dsn) as connection:
        create_schema(connection, "blue")
    with (
        pytest.raises(Refused, match="blue has no tables yet: run `cms migrate`"),
        standalone_transaction(address),
    ):
        pass


def test_the_service_serves_nothing_from_another_schema(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cms.database.connections.schema_of", lambda dsn: "green")
    monkeypatch.setattr("cms.database.connections._BORROW_SECONDS", 0.3)
    client = Client(create_app(tenants[0].config), tenants[0].token)
    answer = client.get("/items/notes")
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    client.close()


def test_the_queue_takes_no_jobs_from_another_schema(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cms.database.session_setup.schema_of", lambda dsn: "green")
    # Other tests in this process may have started the service's own log.
    caplog.set_level(logging.WARNING, "psycopg")
    monkeypatch.setattr(logging.getLogger("psycopg"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("psycopg.pool"), "filters", [])
    arguments = pool_arguments(tenants[0].config)
    open_pool = arguments.pop("pool_factory")

    async def connect() -> None:
        pool = open_pool(**arguments, min_size=1, open=False)
        try:
            await pool.open(wait=True, timeout=1.0)
        finally:
            await pool.close()

    with pytest.raises(psycopg_pool.PoolTimeout):
        asyncio.run(connect())
    assert "the schema blue, not in green" in caplog.text


def test_migrations_refuse_a_session_in_another_schema(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cms.database.migrate.schema_of", lambda dsn: "green")
    for apply in (migrate, pending):
        with pytest.raises(MigrationError, match="pooler leaves out search_path"):
            apply(tenants[0].dsn)


def test_the_doctor_names_tables_that_postgresql_would_take_for_missing_ones(
    tenants: Tenants,
) -> None:
    blue, _ = tenants
    blue.admin.post("/collections", {"collection": "gone", "schema": {}})
    blue.execute("DROP TABLE gone; CREATE TABLE public.gone (id integer PRIMARY KEY)")
    blue.execute("CREATE TABLE public.notes (id integer); CREATE TABLE public.others (id integer)")
    try:
        assert schema_findings(blue) == ["schema: public.gone, public.notes have the names"]
    finally:
        blue.execute("DROP TABLE public.gone, public.notes, public.others")
    assert schema_findings(blue) == []


def schema_findings(one: Tenant) -> list[str]:
    texts = [finding.text for finding in structure_findings(one.dsn)]
    return [text.partition(" of collections")[0] for text in texts if text.startswith("schema: ")]


@pytest.mark.parametrize(
    ("address", "schema"),
    [
        ("postgresql://h/d", None),
        ("postgresql://h/d?options=-csearch_path%3Dblue%2Cpublic", "blue"),
        ("host=h options=-csearch_path=blue,public", "blue"),
        # By hand, other schemas may come before the tables.
        ("host=h options='-c search_path=blue'", None),
        ("host=h options='-c search_path=clocks,public,pg_catalog'", None),
        ("host=h options='-c jit=off'", None),
    ],
)
def test_the_schema_of_an_address_is_that_of_the_setting(address: str, schema: str | None) -> None:
    assert schema_of(address) == schema


@pytest.mark.release
def test_twenty_begin_at_once(empty_dsn: str, settings: Config, tmp_path: Path) -> None:
    names = [f"tenant_{number}" for number in range(20)]
    with ThreadPoolExecutor(4) as threads, ExitStack() as stack:
        tenants = list(threads.map(lambda name: tenant(name, empty_dsn, settings, tmp_path), names))
        for one in tenants:
            stack.callback(one.admin.close)

        def use(one: Tenant) -> list[int]:
            one.admin.post("/collections", {"collection": "notes", "schema": {}, "fields": [TEXT]})
            one.admin.post("/items/notes", [{"text": "a"}, {"text": "b"}])
            return [item["id"] for item in one.admin.get("/items/notes").data]

        assert list(threads.map(use, tenants)) == [[1, 2]] * len(names)
