"""What the code says of the system tables is true of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from cms.schema.system import SYSTEM_COLLECTIONS, SYSTEM_TABLES

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def migrated(module_migrated_dsn: str) -> Iterator[Connection]:
    """A connection to a migrated database, which the tests only read."""
    with psycopg.connect(module_migrated_dsn, autocommit=True) as connection:
        yield connection


def rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()


def columns_of(connection: Connection) -> set[tuple[Any, ...]]:
    return set(
        rows(
            connection,
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = "
            "current_schema()",
        )
    )


def test_every_system_table_is_either_listed_or_kept_to_ourselves(migrated: Connection) -> None:
    tables = rows(
        migrated,
        """
        SELECT relname
          FROM pg_class
         WHERE relnamespace = current_schema()::regnamespace
           AND relkind IN ('r', 'p')
           AND NOT relispartition
           AND NOT starts_with(relname, 'procrastinate_')
        """,
    )
    assert {name for (name,) in tables} == SYSTEM_TABLES.keys()


def test_every_column_that_the_code_names_is_there(migrated: Connection) -> None:
    named = set()
    for table in SYSTEM_TABLES.values():
        columns = {*table.special, *table.references, *table.internal_columns}
        columns |= table.unrecorded_columns | table.unique_in_any_case
        named |= {(table.name, column) for column in columns}
        named |= {(alias.many_collection, alias.many_field) for alias in table.aliases.values()}
    assert named <= columns_of(migrated)


def test_every_alias_is_the_other_side_of_a_foreign_key_and_hides_no_column(
    migrated: Connection,
) -> None:
    keys = set(
        rows(
            migrated,
            """
            SELECT conrelid::regclass::text, attname, confrelid::regclass::text
              FROM pg_constraint
              JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
             WHERE contype = 'f'
            """,
        )
    )
    for table in SYSTEM_TABLES.values():
        keys |= {(table.name, column, target) for column, target in table.references.items()}
    aliases = {
        (table.name, field): (target.many_collection, target.many_field, table.name)
        for table in SYSTEM_TABLES.values()
        for field, target in table.aliases.items()
    }
    assert set(aliases.values()) <= keys
    assert not aliases.keys() & columns_of(migrated)


def markers() -> dict[tuple[str, str], tuple[str, ...]]:
    return {
        (table.name, column): special
        for table in SYSTEM_TABLES.values()
        for column, special in table.special.items()
    }


def test_every_column_that_holds_a_secret_is_hashed_or_concealed(migrated: Connection) -> None:
    secrets = {
        column
        for column in columns_of(migrated)
        if column[0] in SYSTEM_COLLECTIONS
        and column[1] in {"password", "token", "tfa_secret", "auth_data"}
    }
    assert secrets == {column for column, special in markers().items() if "conceal" in special}


def test_every_column_that_the_service_fills_in_is_marked(migrated: Connection) -> None:
    filled = {
        column for column in columns_of(migrated) if column[1] in {"date_created", "user_created"}
    }
    assert filled <= markers().keys()


def test_every_check_says_what_it_takes(migrated: Connection) -> None:
    named = (
        "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid::regclass::text "
        "LIKE 'system_%'"
    )
    assert {name for (name,) in migrated.execute(named)} == {
        name for table in SYSTEM_TABLES.values() for name in table.check_rules
    }
