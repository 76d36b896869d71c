"""SQL functions have new names, and services of the version before still call the former ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cms.database.migrate import migrate
from cms.database.sqlstates import RULE_VIOLATED
from cms.database.statements import sql_folder

Connection = psycopg.Connection[tuple[Any, ...]]

BEFORE = 27
"""The last migration of the version before."""
ARTICLES = """
CREATE TABLE articles (id serial PRIMARY KEY, dropped integer, title text, pages integer);
ALTER TABLE articles DROP COLUMN dropped;
"""
REVISIONS = """
SELECT item.* FROM unnest(ARRAY[
    '{"id": 1, "title": "a", "pages": 3, "more": true}',
    '{"id": 2, "title": "b"}',
    '{"id": 3, "title": "c", "pages": "many"}'
]::json[]) AS revision (data)
CROSS JOIN {function}(NULL::articles, revision.data, '{id,title,pages}') AS item
"""
CALLS = [
    (REVISIONS, "system_held", "system_revision_row", [(1, "a", 3)]),
    ("SELECT {function}(true)", "system_require", "system_require_rule", [(True,)]),
    (
        "SELECT {function}('articles', 'id')::text",
        "system_sequence",
        "system_column_sequence",
        [("articles_id_seq",)],
    ),
    (
        "SELECT {function}('articles', 'id', ARRAY[last_value + 5])"
        ", pg_sequence_last_value('articles_id_seq') - last_value FROM articles_id_seq",
        "system_pass_keys",
        "system_advance_sequence",
        [(True, 5)],
    ),
]


@pytest.fixture
def older_dsn(empty_dsn: str, tmp_path: Path) -> str:
    """The address of a database of the version before, with a collection."""
    for path in sorted((sql_folder() / "migrations").glob("*.sql"))[:BEFORE]:
        shutil.copy(path, tmp_path)
    migrate(empty_dsn, folder=tmp_path)
    with psycopg.connect(empty_dsn) as connection:
        connection.execute(ARTICLES)
    return empty_dsn


@pytest.fixture
def older_service(older_dsn: str) -> Iterator[Connection]:
    """A connection of a service of the version before."""
    with psycopg.connect(older_dsn, autocommit=True) as connection:
        yield connection


def call(connection: Connection, query: str, function: str) -> list[tuple[Any, ...]]:
    statement = query.replace("{function}", function).encode()
    return connection.execute(statement, prepare=True).fetchall()


@pytest.mark.release
def test_statements_that_an_older_service_has_prepared_give_the_same_after_an_upgrade(
    older_dsn: str, older_service: Connection
) -> None:
    for upgraded in (False, True):
        if upgraded:
            assert "0028_plain_names" in migrate(older_dsn)
        # PostgreSQL keeps the plan of a prepared statement from the sixth execution on.
        for _ in range(7):
            for query, former, _, rows in CALLS:
                assert call(older_service, query, former) == rows, (former, upgraded)
            with pytest.raises(psycopg.Error) as error:
                call(older_service, "SELECT {function}(false)", "system_require")
            assert error.value.sqlstate == RULE_VIOLATED, upgraded


def test_former_and_present_names_give_the_same_side_by_side(
    migrated_connection: Connection,
) -> None:
    with migrated_connection.transaction(force_rollback=True):
        migrated_connection.execute(ARTICLES)
        for query, former, present, rows in CALLS:
            assert call(migrated_connection, query, former) == rows, former
            assert call(migrated_connection, query, present) == rows, present
