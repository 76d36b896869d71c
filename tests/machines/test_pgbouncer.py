"""The service through a real PgBouncer in transaction mode, with fewer connections than clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.databases import drop_database, run_sql
from tests.files.images import picture
from tests.machines.installation import Client, Installation, installation
from tests.machines.load import load, make_notes
from tests.machines.pgbouncer import pgbouncer, set_for_role
from tests.smoke.running import command, new_folder
from tests.waiting import eventually

pytestmark = [pytest.mark.release, pytest.mark.slow]

ROWS = 3000


@dataclass(frozen=True)
class Pooled:
    machines: Installation
    admin: Client
    dsn: str
    address: str
    folder: Path

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return run_sql(self.dsn, sql)


@pytest.fixture(scope="module")
def pooled_site(make_database: Callable[..., str], template: str) -> Iterator[Pooled]:
    dsn = make_database(template)
    set_for_role(dsn)
    with new_folder() as folder, pgbouncer(folder, dsn) as address:
        settings = {
            "DATABASE_URL": address,
            "DATABASE_DIRECT_URL": dsn,
            "DATABASE_PREPARE": "false",
        }
        with installation(folder, address, settings, web=2, workers=1) as machines:
            yield Pooled(machines, machines.first.login(), dsn, address, folder)
    drop_database(dsn)


def test_clients_read_and_write_in_parallel_without_a_failed_request(pooled_site: Pooled) -> None:
    make_notes(pooled_site.admin)
    second = pooled_site.admin.at(pooled_site.machines.web[1])
    with load(pooled_site.admin) as outcomes, load(second) as others:
        outcomes.await_more(200)
        others.await_more(200)
    assert outcomes.failed == {}
    assert others.failed == {}
    assert pooled_site.query("SELECT count(*) FROM notes") == [(outcomes.created + others.created,)]


def test_values_have_the_same_text_as_without_it(pooled_site: Pooled) -> None:
    types = {"moment": "timestamp", "day": "date", "span": "unknown", "number": "float"}
    pooled_site.query(
        "CREATE TABLE spans (id serial PRIMARY KEY, moment timestamptz, day date, span interval,"
        " number float8);"
        "INSERT INTO spans (moment, day, span, number)"
        " VALUES ('2020-02-03 04:05:06+09', '2020-02-03', '1 day 2 hours', 0.1)"
    )
    pooled_site.admin.send("POST", "/utils/cache/clear")
    (row,) = pooled_site.admin.data("GET", f"/items/spans?fields={','.join(types)}")
    assert row == {
        "moment": "2020-02-02T19:05:06.000Z",
        "day": "2020-02-03",
        "span": "P1DT2H",
        "number": 0.1,
    }


def test_what_uses_a_connection_longer_works_as_well(pooled_site: Pooled) -> None:
    fields = [{"field": "text", "type": "string"}]
    table = {"collection": "rows", "schema": {}, "fields": fields}
    pooled_site.admin.data("POST", "/collections", table)
    content = "text\n" + "".join(f"row {number}\n" for number in range(ROWS))
    headers = {"Content-Type": "text/csv"}
    pooled_site.admin.send("POST", "/utils/import/rows", data=content, headers=headers)
    # Exports read by a cursor, in a transaction.
    exported = pooled_site.admin.send("GET", "/items/rows?export=csv&limit=-1&fields=text&sort=id")
    assert exported.text.split() == content.split()
    # Panels are read in one pipeline.
    dashboard = pooled_site.admin.data("POST", "/dashboards", {"name": "All"})["id"]
    for _ in range(3):
        options = {"collection": "rows", "function": "count", "field": "*"}
        panel = {"dashboard": dashboard, "type": "metric", "options": options}
        panel |= {"position_x": 1, "position_y": 1, "width": 4, "height": 4}
        pooled_site.admin.data("POST", "/panels", panel)
    key = pooled_site.admin.send("POST", "/files", files={"file": ("a.png", picture("PNG"))}).json()
    image = f"/assets/{key['data']['id']}?width=8"
    with ThreadPoolExecutor(8) as threads:
        sent = list(
            threads.map(lambda _: pooled_site.admin.send("GET", image).status_code, range(8))
        )
    assert sent == [200] * 8
    answer = pooled_site.admin.send("GET", f"/dashboards/{dashboard}/data")
    assert answer.status_code == 200, answer.text


def test_two_calls_with_one_key_write_once(pooled_site: Pooled) -> None:
    pooled_site.admin.data("POST", "/collections", {"collection": "once", "schema": {}})
    headers = {"Idempotency-Key": "the same"}

    def create(_: int) -> int:
        return pooled_site.admin.send("POST", "/items/once", json={}, headers=headers).status_code

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(create, range(16))) == {200}
    assert pooled_site.query("SELECT count(*) FROM once") == [(1,)]


def test_indexes_of_large_tables_are_built_and_leave_no_lock(pooled_site: Pooled) -> None:
    require_indexes(pooled_site, pooled_site.admin, "large")


def require_indexes(pooled_site: Pooled, admin: Client, table: str) -> None:
    """Have two indexes of a new table built at the same time."""
    pooled_site.query(
        f"CREATE TABLE {table} (id serial PRIMARY KEY, a text, b text);"
        f"INSERT INTO {table} (a, b)"
        " SELECT repeat(md5(n::text), 5), n FROM generate_series(1, 90000) AS n"
    )
    admin.send("POST", "/utils/cache/clear")

    def index(field: str) -> tuple[int, str]:
        body = {"schema": {"is_indexed": True}}
        answer = admin.send("PATCH", f"/fields/{table}/{field}", json=body)
        return answer.status_code, "" if answer.ok else answer.text

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(index, "ab")) == [(200, "")] * 2

    def is_built(field: str) -> bool:
        return bool(admin.data("GET", f"/fields/{table}/{field}")["schema"]["is_indexed"])

    eventually(lambda: is_built("a") and is_built("b"))
    indexes = f"SELECT count(*) FROM pg_indexes WHERE tablename = '{table}'"
    assert pooled_site.query(indexes) == [(3,)]
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    # The builder lets go of its lock behind the last index.
    eventually(lambda: pooled_site.query(locks) == [(0,)], seconds=10)


def test_without_a_way_past_it_indexes_of_a_table_are_built_one_after_the_other(
    pooled_site: Pooled,
) -> None:
    settings = {"DATABASE_PREPARE": "false"}
    with (
        new_folder() as folder,
        installation(folder, pooled_site.address, settings, web=2) as machines,
    ):
        for number in range(3):
            require_indexes(pooled_site, machines.first.login(), f"larger{number}")


def test_a_worker_does_the_jobs_of_web_servers(pooled_site: Pooled) -> None:
    options = {"method": "GET", "async": True}
    flow = pooled_site.admin.data(
        "POST", "/flows", {"name": "H", "trigger": "webhook", "options": options}
    )
    for _ in range(10):
        assert pooled_site.admin.send("GET", f"/flows/trigger/{flow['id']}").ok
    done = f"SELECT count(*) FROM system_flow_runs WHERE flow = '{flow['id']}' AND state = 'done'"
    eventually(lambda: pooled_site.query(done) == [(10,)])


def test_commands_work_through_it(pooled_site: Pooled) -> None:
    settings = {"DATABASE_URL": pooled_site.address, "DATABASE_PREPARE": "false"}
    settings["SECRET"] = "only-for-tests-" * 3
    for words in (["migrate"], ["maintain"], ["bootstrap"]):
        done = command(pooled_site.folder, *words, **settings)
        assert done.returncode == 0, done.stdout
    report = command(pooled_site.folder, "doctor", **settings)
    assert "session: it has the settings of the service" in report.stdout


def test_the_doctor_names_the_missing_settings(pooled_site: Pooled) -> None:
    name = pooled_site.address.rpartition("/")[2]
    pooled_site.query(f"ALTER ROLE postgres IN DATABASE \"{name}\" SET timezone = 'Asia/Tokyo'")
    try:
        with psycopg.connect(pooled_site.dsn) as connection:
            user = connection.info.user
        assert user == "postgres"
        with new_folder() as folder, pgbouncer(folder, pooled_site.dsn) as address:
            report = command(folder, "doctor", DATABASE_URL=address, DATABASE_PREPARE="false")
        assert "session: a pooler leaves out timezone; set them for the role" in report.stdout
    finally:
        set_for_role(pooled_site.dsn)


def test_an_installation_in_a_schema_has_a_role_of_its_own(pooled_site: Pooled) -> None:
    name = pooled_site.address.rpartition("/")[2]
    pooled_site.query(
        f'CREATE ROLE tenant SUPERUSER LOGIN; ALTER ROLE tenant IN DATABASE "{name}"'
        " SET search_path = tenant, public"
    )
    dsn = make_conninfo(pooled_site.dsn, user="tenant")
    settings = {"DATABASE_SCHEMA": "tenant", "DATABASE_PREPARE": "false"}
    try:
        set_for_role(dsn)
        with new_folder() as folder, pgbouncer(folder, dsn) as address:
            first = {"ADMIN_EMAIL": ADMIN_EMAIL, "ADMIN_PASSWORD": ADMIN_PASSWORD}
            command(folder, "bootstrap", DATABASE_URL=address, **settings, **first)
            with installation(folder, address, settings, web=1) as machines:
                admin = machines.first.login()
                admin.data("POST", "/collections", {"collection": "notes_of_tenant", "schema": {}})
                assert admin.data("POST", "/items/notes_of_tenant", {}) == {"id": 1}
            report = command(folder, "doctor", DATABASE_URL=address, **settings)
            assert "migrations: all applied" in report.stdout
        tables = "SELECT schemaname FROM pg_tables WHERE tablename = 'notes_of_tenant'"
        assert pooled_site.query(tables) == [("tenant",)]
    finally:
        pooled_site.query("DROP SCHEMA tenant CASCADE; DROP OWNED BY tenant; DROP ROLE tenant")


def test_a_session_in_another_schema_than_that_of_the_setting_is_refused(
    pooled_site: Pooled,
) -> None:
    settings = {"DATABASE_SCHEMA": "tenant", "DATABASE_PREPARE": "false"}
    # The role has no search path: PgBouncer leaves out that of the address.
    report = command(pooled_site.folder, "migrate", DATABASE_URL=pooled_site.address, **settings)
    assert report.returncode == 1
    assert "pooler leaves out search_path" in report.stdout
    assert pooled_site.query("SELECT FROM pg_namespace WHERE nspname = 'tenant'") == []


def test_the_log_has_no_error(pooled_site: Pooled) -> None:
    text = pooled_site.machines.log_text()
    assert "Traceback" not in text
    assert "prepared statement" not in text
