"""The system tables keep their promises by themselves, whatever writes to them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[tuple[Any, ...]]

PEOPLE = """
INSERT INTO system_roles (id, name) VALUES
    ('00000000-0000-0000-0000-000000000001', 'Editors'),
    ('00000000-0000-0000-0000-000000000002', 'Readers');
INSERT INTO system_users (id, email, role) VALUES
    ('00000000-0000-0000-0000-00000000000a', 'Ada@example.com',
    '00000000-0000-0000-0000-000000000001'),
    ('00000000-0000-0000-0000-00000000000b', 'bob@example.com', NULL);
INSERT INTO system_permissions (role, collection, action) VALUES
    ('00000000-0000-0000-0000-000000000001', 'articles', 'read'),
    (NULL, 'articles', 'read');
INSERT INTO system_folders (id, name, parent) VALUES
    ('00000000-0000-0000-0000-0000000000f1', 'outer', NULL),
    ('00000000-0000-0000-0000-0000000000f2', 'inner', '00000000-0000-0000-0000-0000000000f1');
INSERT INTO system_files (id, storage, filename_download, folder, uploaded_by) VALUES
    ('00000000-0000-0000-0000-0000000000c1', 'local', 'a.png', NULL,
    '00000000-0000-0000-0000-00000000000a');
INSERT INTO system_shares (id, collection, item, user_created) VALUES
    ('00000000-0000-0000-0000-0000000000d1', 'articles', '1',
    '00000000-0000-0000-0000-00000000000a');
INSERT INTO system_sessions ("user", share, token, expires) VALUES
    ('00000000-0000-0000-0000-00000000000a', NULL, 'digest', now()),
    (NULL, '00000000-0000-0000-0000-0000000000d1', 'digest', now());
INSERT INTO system_activity (action, "user", collection, item) VALUES
    ('login', '00000000-0000-0000-0000-00000000000a', 'system_users', 'a');
INSERT INTO system_dashboards (id, name) VALUES ('00000000-0000-0000-0000-0000000000e1', 'Sales');
INSERT INTO system_panels (dashboard, type) VALUES ('00000000-0000-0000-0000-0000000000e1',
    'metric');
INSERT INTO system_flows (id, name) VALUES ('00000000-0000-0000-0000-0000000000b1', 'Welcome');
INSERT INTO system_operations (id, flow, key, type) VALUES
    ('00000000-0000-0000-0000-0000000000b2', '00000000-0000-0000-0000-0000000000b1', 'one', 'log');
UPDATE system_flows SET operation = '00000000-0000-0000-0000-0000000000b2';
INSERT INTO system_collections (collection) VALUES ('articles');
INSERT INTO system_fields (collection, field) VALUES ('articles', 'title');
INSERT INTO system_relations (many_collection, many_field) VALUES ('articles', 'author');
"""


@pytest.fixture
def migrated(migrated_connection: Connection) -> Iterator[Connection]:
    """A connection to a migrated database, in a transaction that is taken back after the test."""
    with migrated_connection.transaction(force_rollback=True):
        yield migrated_connection


@pytest.fixture
def with_rows(migrated: Connection) -> Connection:
    migrated.execute(PEOPLE)
    return migrated


def rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()


def column(connection: Connection, query: str) -> set[Any]:
    return {value for (value,) in rows(connection, query)}


@contextmanager
def refused(
    connection: Connection, error: type[psycopg.Error]
) -> Iterator[pytest.ExceptionInfo[psycopg.Error]]:
    """Expect an error, after which the transaction of the test goes on."""
    with pytest.raises(error) as refusal, connection.transaction():
        yield refusal


def count(connection: Connection, table: str) -> int:
    return len(rows(connection, f"SELECT 1 FROM {table}"))


# Freshness


MOVES: dict[str | None, list[str]] = {
    "structure": [
        "INSERT INTO system_collections (collection) VALUES ('pages')",
        "UPDATE system_collections SET note = 'x'",
        "DELETE FROM system_collections",
        "TRUNCATE system_collections",
        "INSERT INTO system_fields (collection, field) VALUES ('articles', 'body')",
        "UPDATE system_fields SET hidden = true",
        "DELETE FROM system_fields",
        "TRUNCATE system_fields",
        "INSERT INTO system_relations (many_collection, many_field) VALUES ('articles', 'x')",
        "UPDATE system_relations SET one_field = 'articles'",
        "DELETE FROM system_relations",
        "TRUNCATE system_relations",
    ],
    "access": [
        "INSERT INTO system_roles (name) VALUES ('x')",
        "UPDATE system_roles SET admin_access = true",
        "DELETE FROM system_roles WHERE name = 'Readers'",
        "INSERT INTO system_permissions (collection, action) VALUES ('articles', 'create')",
        "UPDATE system_permissions SET fields = '[]'",
        "DELETE FROM system_permissions",
        "TRUNCATE system_permissions",
        "UPDATE system_settings SET auth_login_attempts = 3",
        "DELETE FROM system_settings",
        "TRUNCATE system_settings",
        "DELETE FROM system_users WHERE email = 'bob@example.com'",
        "UPDATE system_users SET role = '00000000-0000-0000-0000-000000000002'",
        "UPDATE system_users SET role = NULL",
        "UPDATE system_users SET status = 'suspended'",
        "UPDATE system_users SET token = 'digest' WHERE email = 'bob@example.com'",
        "UPDATE system_users SET password = 'hash'",
        "UPDATE system_users SET email = 'bobby@example.com' WHERE email = 'bob@example.com'",
        "UPDATE system_users SET tfa_secret = 'secret'",
        "UPDATE system_users SET id = gen_random_uuid() WHERE email = 'bob@example.com'",
    ],
    None: [
        "INSERT INTO system_users (email) VALUES ('carol@example.com')",
        "UPDATE system_users SET last_access = now(), last_page = '/', failed_logins = 3",
        "UPDATE system_users SET role = role, status = 'active'",
        "UPDATE system_users SET status = 'suspended' WHERE email = 'nobody'",
        "INSERT INTO system_files (storage, filename_download) VALUES ('local', 'b')",
        "DELETE FROM system_files",
        "INSERT INTO system_activity (action, collection, item) VALUES ('login', 'x', '1')",
        "UPDATE system_sessions SET token = 'other'",
    ],
}


def moved_by(connection: Connection, statement: str) -> set[str]:
    """Name the counters that a statement moves, and take it back."""
    query = "SELECT structure, access FROM system_version"
    with connection.transaction(force_rollback=True):
        [before] = rows(connection, query)
        connection.execute(statement.encode())
        [after] = rows(connection, query)
    return {
        name
        for name, was, now in zip(("structure", "access"), before, after, strict=True)
        if now > was
    }


@pytest.mark.parametrize("counter", MOVES)
def test_a_counter_moves_with_what_it_stands_for_and_with_nothing_else(
    with_rows: Connection, counter: str | None
) -> None:
    moved = {statement: moved_by(with_rows, statement) for statement in MOVES[counter]}
    assert moved == dict.fromkeys(MOVES[counter], {counter} if counter else set())


def test_a_change_of_many_users_moves_the_counter_once(with_rows: Connection) -> None:
    [before] = rows(with_rows, "SELECT access FROM system_version")
    with_rows.execute("UPDATE system_users SET status = 'suspended'")
    assert rows(with_rows, "SELECT access FROM system_version") == [(before[0] + 1,)]


def test_the_right_counter_moves_when_the_search_path_is_elsewhere(with_rows: Connection) -> None:
    with_rows.execute("CREATE SCHEMA elsewhere; SET search_path = elsewhere")
    [before] = rows(with_rows, "SELECT access FROM public.system_version")
    with_rows.execute("INSERT INTO public.system_roles (name) VALUES ('x')")
    with_rows.execute("UPDATE public.system_users SET status = 'suspended'")
    assert rows(with_rows, "SELECT access FROM public.system_version") == [(before[0] + 2,)]


# Rows that are exactly one


@pytest.mark.parametrize("table", ["system_version", "system_settings"])
def test_there_is_one_row_and_no_second(migrated: Connection, table: str) -> None:
    assert count(migrated, table) == 1
    for insert in ("DEFAULT VALUES", "(id) VALUES (2)"):
        with refused(migrated, psycopg.IntegrityError):
            migrated.execute(f"INSERT INTO {table} {insert}".encode())
    assert count(migrated, table) == 1


@pytest.mark.parametrize("statement", ["DELETE FROM system_version", "TRUNCATE system_version"])
def test_the_counters_cannot_be_removed(migrated: Connection, statement: str) -> None:
    with refused(migrated, psycopg.errors.RaiseException):
        migrated.execute(statement.encode())
    assert count(migrated, "system_version") == 1


def test_settings_start_with_the_defaults_of_the_specification(migrated: Connection) -> None:
    assert rows(
        migrated,
        "SELECT project_name, auth_login_attempts, storage_asset_transform, "
        "public_registration FROM system_settings",
    ) == [("CMS", 25, "all", False)]


# History by month


def write_activity(connection: Connection, when: datetime) -> None:
    connection.execute(
        """
        INSERT INTO system_activity (action, collection, item, "timestamp")
        VALUES ('create', 'x', '1', %s)
        """,
        [when],
    )


def column_names(connection: Connection) -> list[str]:
    query = 'SELECT tableoid::regclass::text FROM system_activity ORDER BY "timestamp"'
    return [column for (column,) in rows(connection, query)]


def test_what_happens_now_lands_in_the_partition_of_its_month(migrated: Connection) -> None:
    now = datetime.now(UTC)
    write_activity(migrated, now)
    migrated.execute(
        "INSERT INTO system_revisions (activity, collection, item, created) VALUES (1, 'x', '1', "
        "%s)",
        [now],
    )
    assert column_names(migrated) == [f"system_activity_{now:%Y_%m}"]
    assert rows(migrated, "SELECT tableoid::regclass::text FROM system_revisions") == [
        (f"system_revisions_{now:%Y_%m}",)
    ]


def test_months_begin_in_utc_whatever_the_zone_of_the_session(migrated: Connection) -> None:
    migrated.execute("SET timezone = 'Asia/Tokyo'; SET datestyle = 'SQL, DMY'")
    migrated.execute("SELECT system_make_partitions(12)")
    first = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0) + timedelta(
        days=192
    )
    first = first.replace(day=1)
    write_activity(migrated, first - timedelta(microseconds=1))
    write_activity(migrated, first)
    before = first - timedelta(days=1)
    assert column_names(migrated) == [
        f"system_activity_{before:%Y_%m}",
        f"system_activity_{first:%Y_%m}",
    ]


def test_a_month_without_a_partition_is_still_written_and_moves_when_it_gets_one(
    migrated: Connection,
) -> None:
    now = datetime.now(UTC)
    distant = [now - timedelta(days=4000), now + timedelta(days=200), now + timedelta(days=4000)]
    for when in distant:
        write_activity(migrated, when)
    assert column_names(migrated) == ["system_activity_default"] * 3
    before = rows(migrated, "SELECT * FROM system_activity ORDER BY id")
    migrated.execute("SELECT system_make_partitions(12)")
    assert column_names(migrated) == [
        "system_activity_default",
        f"system_activity_{distant[1]:%Y_%m}",
        "system_activity_default",
    ]
    assert rows(migrated, "SELECT * FROM system_activity ORDER BY id") == before


def test_partitions_are_made_once_also_by_several_at_a_time(
    migrated_dsn: str,
) -> None:
    def make(_: int) -> int:
        with psycopg.connect(migrated_dsn) as connection:
            count = connection.execute("SELECT system_make_partitions(9)").fetchone()
        assert count is not None
        return int(count[0])

    with ThreadPoolExecutor(4) as threads:
        counts = sorted(threads.map(make, range(4)))
    assert counts == [0, 0, 0, 12]
    assert make(4) == 0


def test_a_new_partition_has_the_indexes_and_the_key_of_the_whole(migrated: Connection) -> None:
    counted = column(
        migrated,
        """
        SELECT count(*)
          FROM pg_index
          JOIN pg_class ON pg_class.oid = indrelid
         WHERE relname LIKE 'system_activity%' AND relkind IN ('r', 'p')
         GROUP BY relname
        """,
    )
    assert len(counted) == 1


# Rules of the tables


def test_an_address_belongs_to_one_user_whatever_its_case(with_rows: Connection) -> None:
    with refused(with_rows, psycopg.errors.UniqueViolation) as refusal:
        with_rows.execute("INSERT INTO system_users (email) VALUES ('ADA@EXAMPLE.COM')")
    assert refusal.value.diag.constraint_name == "system_users_email_key"


def test_several_users_may_have_no_address(with_rows: Connection) -> None:
    with_rows.execute("INSERT INTO system_users (first_name) VALUES ('x'), ('y')")


REFUSED = {
    "system_users_status_check": "UPDATE system_users SET status = 'gone'",
    "system_users_token_key": "UPDATE system_users SET token = 'same'",
    "system_permissions_action_check": "UPDATE system_permissions SET action = 'drop'",
    "system_flows_status_check": "UPDATE system_flows SET status = 'x'",
    "system_flows_trigger_check": "UPDATE system_flows SET trigger = 'x'",
    "system_settings_auth_login_attempts_check": "UPDATE system_settings SET auth_login_attempts = "
    "0",
    "system_settings_storage_asset_transform_check": (
        "UPDATE system_settings SET storage_asset_transform = 'x'"
    ),
    "system_files_focal_point_x_check": "UPDATE system_files SET focal_point_x = 1.1",
    "system_relations_one_deselect_action_check": "UPDATE system_relations SET one_deselect_action "
    "= 'x'",
    "system_collections_collapse_check": "UPDATE system_collections SET collapse = 'x'",
    "system_fields_collection_field_key": (
        "INSERT INTO system_fields (collection, field) VALUES ('articles', 'title')"
    ),
    "system_relations_many_key": (
        "INSERT INTO system_relations (many_collection, many_field) VALUES ('articles', 'author')"
    ),
    "system_sessions_holder_check": "INSERT INTO system_sessions (token, "
    "expires) VALUES ('digest', now())",
}


def refused_by(connection: Connection, statement: str) -> str | None:
    with refused(connection, psycopg.IntegrityError) as refusal:
        connection.execute(statement.encode())
    return refusal.value.diag.constraint_name


def test_a_value_that_makes_no_sense_is_refused_by_a_constraint_with_a_name(
    with_rows: Connection,
) -> None:
    constraints = {name: refused_by(with_rows, statement) for name, statement in REFUSED.items()}
    assert constraints == {name: name for name in REFUSED}


def test_a_role_that_is_deleted_takes_its_permissions_and_leaves_its_users(
    with_rows: Connection,
) -> None:
    with_rows.execute("DELETE FROM system_roles")
    assert column(with_rows, "SELECT role FROM system_users") == {None}
    assert count(with_rows, "system_users") == 2
    assert rows(with_rows, "SELECT role, collection FROM system_permissions") == [
        (None, "articles")
    ]


def test_a_user_who_is_deleted_leaves_files_and_history_and_takes_sessions_and_shares(
    with_rows: Connection,
) -> None:
    with_rows.execute("DELETE FROM system_users WHERE email = 'Ada@example.com'")
    assert rows(with_rows, "SELECT uploaded_by FROM system_files") == [(None,)]
    assert rows(with_rows, 'SELECT "user"::text FROM system_activity') == [
        ("00000000-0000-0000-0000-00000000000a",)
    ]
    assert count(with_rows, "system_shares") == 0
    assert count(with_rows, "system_sessions") == 0


def test_a_dashboard_takes_its_panels_and_a_flow_its_operations(with_rows: Connection) -> None:
    with_rows.execute("DELETE FROM system_dashboards; DELETE FROM system_flows")
    assert count(with_rows, "system_panels") == 0
    assert count(with_rows, "system_operations") == 0


def test_a_folder_takes_its_folders_but_never_a_file(with_rows: Connection) -> None:
    with_rows.execute("UPDATE system_files SET folder = '00000000-0000-0000-0000-0000000000f2'")
    with refused(with_rows, psycopg.errors.ForeignKeyViolation):
        with_rows.execute("DELETE FROM system_folders WHERE name = 'outer'")
    with_rows.execute("DELETE FROM system_files; DELETE FROM system_folders WHERE name = 'outer'")
    assert count(with_rows, "system_folders") == 0


def test_every_foreign_key_is_served_by_an_index(migrated: Connection) -> None:
    bare = column(
        migrated,
        """
        SELECT conname
          FROM pg_constraint
         WHERE contype = 'f'
           AND conrelid <> 'system_settings'::regclass  -- one row
           AND conname NOT LIKE 'procrastinate%'  -- the queue's own
           AND NOT EXISTS (
               SELECT FROM pg_index WHERE indrelid = conrelid AND indkey[0] = conkey[1] AND indpred
                   IS NULL
           )
        """,
    )
    assert bare == set()


def test_the_former_name_of_the_fingerprint_is_the_same_and_costs_nothing(
    migrated: Connection,
) -> None:
    """Services of the version before call it while machines are upgraded one by one."""
    both = migrated.execute("SELECT system_mark(), system_structure_fingerprint()").fetchall()
    ((former, current),) = both
    assert former == current
    plan = migrated.execute("EXPLAIN (VERBOSE) SELECT system_mark() FROM system_version")
    lines = [str(line).strip() for (line,) in plan]
    assert "Output: system_structure_fingerprint()" in lines
