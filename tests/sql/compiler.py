"""The compiler for the tables of this folder: from a query string to a statement and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from cms.access.guard import QueryBounds, guard
from cms.access.policy import Policy
from cms.database.connections import Row
from cms.query.language.paging import PageSizes
from cms.query.language.parse import parse_query_string
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.plan import plan
from cms.query.sql.statement import Statement, finish_statement
from cms.schema.model import Catalogue
from cms.store.snapshot import Snapshots
from tests.statements import counted
from tests.things import Stage

USER = "3d6f0a52-3b1e-4d6e-9f6e-0a2b6c1d9e77"


@dataclass(frozen=True)
class Compiler:
    """The compiler over the tables of a stage, for an administrator."""

    catalogue: Catalogue
    dsn: str

    def compile(self, collection: str, query_string: str) -> tuple[Statement, list[object]]:
        parsed = parse_query_string(query_string, PageSizes())
        page = PageSizes().default_window
        guarded = guard(
            parsed.query,
            collection,
            catalogue=self.catalogue,
            policy=Policy(is_admin=True),
            bounds=QueryBounds(10, page),
        )
        statement = finish_statement(plan(guarded))
        return statement, bind_values(statement.values, Bindings(parsed.literals, user=USER))

    def run(self, statement: Statement, values: list[object]) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, cursor_factory=psycopg.RawCursor) as connection:
            return statement.items(connection.execute(statement.text.encode(), values).fetchall())


def compiler_of(stage: Stage) -> Compiler:
    def fetch(text: str, values: Sequence[object] = ()) -> list[Row]:
        with psycopg.connect(stage.dsn, cursor_factory=psycopg.RawCursor) as connection:
            return connection.execute(text.encode(), values).fetchall()

    return Compiler(Snapshots(fetch).current().catalogue, stage.dsn)


def assert_one_statement(stage: Stage, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Assert that the read of a path is one statement, the first time as well as the second."""
    # Loads the caller and the structure, which takes statements of its own.
    assert stage.admin.get("/roles").status == 200
    for _ in range(2):
        with counted(monkeypatch) as statements:
            assert stage.admin.get(path).status == 200
        assert len(statements) == 1, statements
