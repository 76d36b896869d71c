"""Whatever the rights, the rows and the call: a member's write does what the
model of its rights allows, and no more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import Phase, given, note
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from tests.client import Answer, Client
from tests.examples import example_count
from tests.members import member_of, new_role
from tests.model.test_reads import cases_for_each
from tests.model.writes import OK, Row, Tables, WriteGrant, WriteModel
from tests.things import Stage, field

pytestmark = pytest.mark.slow

CASES = 200
CALLS = 2
cases = settings_of(
    cases_for_each, max_examples=example_count(CASES), phases=[Phase.generate, Phase.shrink]
)

STATES = ("draft", "live")
COLUMNS = {
    "parents": ("size", "state", "things"),
    "things": ("id", "size", "state", "note", "parent"),
}

sizes = st.none() | st.integers(0, 3)
states = st.sampled_from((*STATES, None))
compared = st.sampled_from(("_eq", "_gt", "_lt"))
tests_of_size = st.builds(lambda operator, size: {operator: size}, compared, st.integers(0, 3))
tests_of_state = st.sampled_from(
    [{"_eq": state} for state in STATES] + [{"_null": True}, {"_null": False}]
)
own_rules = st.fixed_dictionaries({}, optional={"size": tests_of_size, "state": tests_of_state})
rules_of_things = own_rules | st.builds(lambda rule: {"parent": rule} if rule else {}, own_rules)


@st.composite
def grants(draw: st.DrawFn, collection: str, action: str) -> WriteGrant:
    names = draw(
        st.just(("*",))
        | st.lists(st.sampled_from(COLUMNS[collection]), unique=True, min_size=1).map(tuple)
    )
    rule = draw(st.just({}) | (own_rules if collection == "parents" else rules_of_things))
    validated = collection == "things" and action in ("create", "update")
    validation = draw(st.just({}) | own_rules) if validated else {}
    presets = draw(
        st.just({}) | st.fixed_dictionaries({}, optional={"state": states, "note": st.just("p")})
    )
    return WriteGrant(collection, action, names, rule, validation, presets if validated else {})


@st.composite
def roles(draw: st.DrawFn) -> list[WriteGrant]:
    actions = [("things", action) for action in ("read", "create", "update", "delete")]
    actions_by_role = [*actions, ("parents", "read"), ("parents", "update")]
    return [
        draw(grants(*role))
        for role in actions_by_role
        for _ in range(draw(st.sampled_from((0, 1, 1, 2, 3))))
    ]


@st.composite
def random_tables(draw: st.DrawFn) -> Tables:
    parents = {key: {"size": draw(sizes), "state": draw(states)} for key in (1, 2)}
    things = {key: draw(values(whole=True)) for key in range(1, draw(st.integers(1, 5)) + 1)}
    return {"parents": parents, "things": things}


def values(*, whole: bool = False) -> st.SearchStrategy[Row]:
    fields = {
        "size": sizes,
        "state": states,
        "note": st.sampled_from(("a", None)),
        "parent": st.sampled_from((1, 2, None)),
    }
    return st.fixed_dictionaries(fields) if whole else st.fixed_dictionaries({}, optional=fields)


keys = st.integers(1, 6)
data = values().filter(bool)
calls = st.one_of(
    st.builds(
        lambda items: {"kind": "create", "items": items}, st.lists(values(), min_size=1, max_size=3)
    ),
    st.builds(
        lambda key, values: {"kind": "change", "keys": [key], "data": values, "single": True},
        keys,
        data,
    ),
    st.builds(
        lambda chosen, values: {"kind": "change", "keys": chosen, "data": values, "single": False},
        st.lists(keys, unique=True, min_size=1, max_size=3),
        data,
    ),
    st.builds(
        lambda state, values: {"kind": "change_filtered", "state": state, "data": values},
        st.sampled_from(STATES),
        data,
    ),
    st.builds(
        lambda chosen: {"kind": "delete", "keys": chosen},
        st.lists(keys, unique=True, min_size=1, max_size=2),
    ),
    st.builds(
        lambda parent, key: {"kind": "unlink", "parent": parent, "key": key},
        st.integers(1, 2),
        keys,
    ),
)


@pytest.fixture(scope="module", autouse=True)
def collections(stage: Stage) -> None:
    own = [field("size", "integer"), field("state", "string")]
    fields = {
        "parents": own,
        "things": [*own, field("note", "string"), field("parent", "integer")],
    }
    for name, columns in fields.items():
        assert (
            stage.admin.post(
                "/collections", {"collection": name, "schema": {}, "fields": columns}
            ).status
            == 200
        )
    relation = {"collection": "things", "field": "parent", "related_collection": "parents"}
    assert (
        stage.admin.post("/relations", {**relation, "meta": {"one_field": "things"}}).status == 200
    )


def test_a_write_does_what_the_rights_allow_and_no_more(stage: Stage) -> None:
    role = str(uuid4())
    new_role(stage, id=role)
    caller = member_of(stage, role)
    with psycopg.connect(stage.dsn, autocommit=True) as connection:

        @cases
        @given(
            tables=random_tables(),
            role_grants=roles(),
            drawn_calls=st.lists(calls, min_size=CALLS, max_size=CALLS),
        )
        def compare(
            tables: Tables, role_grants: list[WriteGrant], drawn_calls: list[dict[str, Any]]
        ) -> None:
            give(connection, role, role_grants)
            for call in drawn_calls:
                load(connection, tables)
                before = traces(connection)
                status, after = WriteModel(
                    {name: dict(rows) for name, rows in tables.items()}, role_grants
                ).do(call)
                answer = send(caller, call)
                note(f"{call} {answer.status} {answer.text}")
                assert (OK if answer.status == 204 else answer.status) == status, call
                assert stored(connection) == comparable(after), call
                if status != OK:
                    assert traces(connection) == before, call

        compare()


def send(caller: Client, call: Mapping[str, Any]) -> Answer:
    match call["kind"]:
        case "create":
            items = call["items"]
            return caller.post("/items/things", items if len(items) > 1 else items[0])
        case "change" if call["single"]:
            return caller.patch(f"/items/things/{call['keys'][0]}", call["data"])
        case "change":
            return caller.patch("/items/things", {"keys": call["keys"], "data": call["data"]})
        case "change_filtered":
            query = {"filter": {"state": {"_eq": call["state"]}}}
            return caller.patch("/items/things", {"query": query, "data": call["data"]})
        case "delete" if len(call["keys"]) == 1:
            return caller.delete(f"/items/things/{call['keys'][0]}")
        case "delete":
            return caller.delete("/items/things", call["keys"])
        case _:
            return caller.patch(
                f"/items/parents/{call['parent']}", {"things": {"delete": [call["key"]]}}
            )


def give(connection: psycopg.Connection, role: str, grants: list[WriteGrant]) -> None:
    rows = [
        (
            role,
            grant.collection,
            grant.action,
            *map(json.dumps, (grant.fields, grant.rule, grant.validation, grant.presets)),
        )
        for grant in grants
    ]
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM system_permissions")
        cursor.executemany(
            "INSERT INTO system_permissions (role, collection, action, fields, permissions, "
            "validation, presets)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            rows,
        )


def load(connection: psycopg.Connection, tables: Tables) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE parents, things")
        for name in ("parents", "things"):
            for key, row in tables[name].items():
                columns = {"id": key, **row}
                placeholders = ", ".join(["%s"] * len(columns))
                insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({placeholders})"
                cursor.execute(insert.encode(), list(columns.values()))
        cursor.execute("ALTER SEQUENCE things_id_seq RESTART WITH 1000")


def stored(connection: psycopg.Connection) -> dict[str, list[str]]:
    contents: dict[str, list[str]] = {}
    for name in ("parents", "things"):
        rows = connection.execute(f"SELECT to_jsonb(t) FROM {name} AS t".encode()).fetchall()
        contents[name] = sorted(
            json.dumps({**row, "id": min(row["id"], 1000)}, sort_keys=True) for (row,) in rows
        )
    return contents


def comparable(tables: Tables) -> dict[str, list[str]]:
    """Return rows as `stored` does: the keys of new ones are the database's to choose."""
    return {
        name: sorted(
            json.dumps({**row, "id": min(key, 1000)}, sort_keys=True) for key, row in rows.items()
        )
        for name, rows in tables.items()
    }


def traces(connection: psycopg.Connection) -> object:
    history = (
        "SELECT (SELECT count(*) FROM system_activity), (SELECT count(*) FROM system_revisions)"
    )
    return connection.execute(history.encode()).fetchone()
