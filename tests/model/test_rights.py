"""A member gets what the visible tables of the model answer, and nothing reveals the rest.

Whatever the schema, the rows, the role and the query: the answer equals the model's over the rows
and fields that the role shows; a query that names anything else is refused with one text; and
after random changes of hidden rows and fields the same query is answered with the same bytes. A
failure prints what repeats it, as in test_reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from tests.client import Answer, Client
from tests.examples import example_count
from tests.model import test_reads as reads
from tests.model.build import load, make_shape, tables_of
from tests.model.generate import all_rows, queries
from tests.model.reads import answer
from tests.model.rights import Role, lists_unkeyed, visible_shape, visible_tables
from tests.model.rights_generate import (
    PARENT,
    ROLE,
    Change,
    changes,
    poisoned,
    roles,
    unseen,
    with_variables,
    without_paths,
    without_variables,
)
from tests.model.shape import Row, Shape, Tables
from tests.things import Stage

pytestmark = pytest.mark.slow

ROLES_FOR_EACH = 25
QUERIES_FOR_EACH = 4
roles_for_each = settings(
    reads.cases_for_each, max_examples=example_count(ROLES_FOR_EACH), phases=[Phase.generate]
)
"""To shrink a failure takes minutes; the assertion tells which of the queries it is."""

REFUSED = (
    '{"errors":[{"message":"You don\'t have permission to access '
    'this.","extensions":{"code":"FORBIDDEN"}}]}'
)


@dataclass(frozen=True)
class ModelQuery:
    collection: str
    query: dict[str, Any]
    legal: bool
    form: str


@dataclass(frozen=True)
class RightsCase:
    """Rows and a role, queries of them, and changes of the rows before the queries come again."""

    rows: dict[str, list[Row]]
    role: Role
    queries: list[ModelQuery]
    changes: list[Change]


@st.composite
def cases(draw: st.DrawFn, shape: Shape) -> RightsCase:
    rows = draw(all_rows(shape))
    role = draw(roles(shape))
    queries = [draw(model_queries(shape, role)) for _ in range(QUERIES_FOR_EACH)]
    return RightsCase(rows, role, queries, draw(changes(shape, rows)))


@st.composite
def model_queries(draw: st.DrawFn, shape: Shape, role: Role) -> ModelQuery:
    """Draw a query over what a role sees; one of eight names what it
    does not see, or what nobody does.
    """
    visible = visible_shape(shape, role)
    name = draw(st.sampled_from(sorted(visible)))
    query = draw(queries(visible, visible[name]))
    legal = not lists_unkeyed(visible, visible[name], query)
    if draw(st.integers(0, 7)) == 0:
        query = draw(poisoned(shape, role, name, query))
        legal = False
    form = draw(st.sampled_from(("SEARCH", "QUERY", "brackets", "JSON")))
    return ModelQuery(name, without_paths(with_variables(query)), legal, form)


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", reads.SCHEMA_NUMBERS)
def test_a_member_gets_what_its_rights_show_and_learns_nothing_of_the_rest(
    stage: Stage, connection: psycopg.Connection, caller: Client, number: int
) -> None:
    shape = make_shape(stage.admin, f"s{number}", Random(f"{reads.SEED}-{number}"))

    @roles_for_each
    @given(case=cases(shape))
    def compare(case: RightsCase) -> None:
        note(f"CMS_MODEL_SEED={reads.SEED}")
        load(connection, shape, case.rows)
        give(connection, case.role)
        tables = tables_of(connection, shape, case.rows)
        visible = visible_tables(tables, case.role)
        replies = [send(caller, one) for one in case.queries]
        for one, reply in zip(case.queries, replies, strict=True):
            check(visible, one, reply)
        load(connection, shape, unseen(tables, case.role, case.rows, case.changes))
        for one, reply in zip(case.queries, replies, strict=True):
            again = send(caller, one)
            assert (again.status, again.text) == (reply.status, reply.text), one

    compare()


def send(caller: Client, one: ModelQuery) -> Answer:
    return reads.send(caller, reads.ReadCase({}, one.collection, one.query, one.form))


def check(visible: Tables, one: ModelQuery, got: Answer) -> None:
    if not one.legal:
        assert (got.status, got.text) == (403, REFUSED), one
        return
    assert got.status == 200, (one, got.text)
    expected = answer(visible, visible.shape[one.collection], without_variables(one.query))
    assert reads.comparable(json.loads(got.text, parse_float=Decimal)) == reads.comparable(
        expected
    ), one


def give(connection: psycopg.Connection, role: Role) -> None:
    """Let the role and its parent hold these grants and no others."""
    rows = [
        (
            PARENT if grant.inherited else ROLE,
            grant.collection,
            json.dumps(grant.fields),
            _rule(grant.rule),
        )
        for grant in role
    ]
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM system_permissions")
        cursor.executemany(
            "INSERT INTO system_permissions (role, collection, action, fields, permissions)"
            " VALUES (%s, %s, 'read', %s, %s)",
            rows,
        )


def _rule(rule: dict[str, Any]) -> str | None:
    return json.dumps(with_variables(rule)) if rule else None
