"""What the code declares of the system tables is true of the tables."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from cms.auth.sessions import Mode
from cms.config.driver_options import MODE
from cms.flows.definition.trigger_types import TRIGGER_TYPES
from cms.schema.system import FLOWS, SYSTEM_COLLECTIONS, SYSTEM_TABLES, Choices, choices_of

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def migrated(migrated_connection: Connection) -> Connection:
    """A migrated database, which the tests only read."""
    return migrated_connection


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


def test_every_check_lists_the_values_that_it_takes(migrated: Connection) -> None:
    named = (
        "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid::regclass::text "
        "LIKE 'system_%'"
    )
    described: set[str] = set()
    for table in SYSTEM_TABLES.values():
        described |= table.check_rules.keys()
        described |= {f"{table.name}_{column}_check" for column in table.choices}
    names = {name for (name,) in migrated.execute(named)}
    assert names == described
    without_rule = [
        name for name in names if not any(t.rule_of(name) for t in SYSTEM_TABLES.values())
    ]
    assert not without_rule


def test_columns_take_the_words_that_their_checks_list(migrated: Connection) -> None:
    checks = rows(
        migrated,
        """
        SELECT relname, attname, NOT attnotnull, pg_get_constraintdef(pg_constraint.oid)
          FROM pg_constraint
          JOIN pg_class ON pg_class.oid = conrelid
          JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
         WHERE contype = 'c'
           AND starts_with(relname, 'system_')
           AND pg_get_constraintdef(pg_constraint.oid) LIKE '%= ANY (ARRAY[%'
        """,
    )
    listed = {
        (table, column): (set(re.findall(r"'(\w+)'::text", check)), is_nullable)
        for table, column, is_nullable, check in checks
    }
    assert listed == {
        (table.name, column): (set(choices.words), choices.is_nullable)
        for table in SYSTEM_TABLES.values()
        for column, choices in table.choices.items()
    }


def test_what_has_code_for_each_word_has_it_for_all() -> None:
    assert tuple(TRIGGER_TYPES) == choices_of(FLOWS, "trigger")
    assert tuple(Mode) == choices_of("system_sessions", "mode")
    assert set(MODE.takes.removeprefix("one of ").split(", ")) == set(Mode)


def test_choices_are_a_sentence() -> None:
    assert Choices(("all", "none", "presets")).rule == "it is all, none or presets"
    assert Choices(("all", "activity"), is_nullable=True).rule == "it is all, activity or null"
