"""Whatever is written and whatever a role may read: activity and revisions show
of it what the model allows, and no more.

The model gets what an administrator sees and how the items are now. A failure
prints what repeats it, as in test_reads.
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

from tests.client import Client
from tests.examples import example_count
from tests.model import test_reads as reads
from tests.model.build import make_shape, tables_of
from tests.model.generate import all_rows
from tests.model.pools import ROWS
from tests.model.rights import ReadGrant, Role
from tests.model.rights_generate import roles
from tests.model.shape import KEY, Collection, Row, Shape
from tests.model.test_rights import give
from tests.model.visible_history import Record, seen
from tests.things import Stage

pytestmark = pytest.mark.slow

SCHEMAS = 4
WRITES_FOR_EACH = 6
ROLES_FOR_EACH = 3
writes_for_each = settings(
    reads.cases_for_each, max_examples=example_count(WRITES_FOR_EACH), phases=[Phase.generate]
)

HISTORY = [ReadGrant(name, ("*",), {}) for name in ("system_activity", "system_revisions")]

Rows = dict[str, list[Row]]


@dataclass(frozen=True)
class HistoryCase:
    """Items as they are created, what of them is written afterwards, the
    keys that go, and who then looks.
    """

    created: Rows
    changed: Rows
    gone: dict[str, list[Any]]
    roles: list[Role]


@st.composite
def cases(draw: st.DrawFn, shape: Shape) -> HistoryCase:
    rows = draw(all_rows(shape))
    created = {
        name: [_without_links(shape[name], row) for row in items] for name, items in rows.items()
    }
    changed = {
        name: [draw(_change(shape[name], row, rows)) for row in items]
        for name, items in rows.items()
    }
    gone = {
        name: [row[KEY] for row in items if draw(st.integers(0, 5)) == 0]
        for name, items in rows.items()
    }
    return HistoryCase(created, changed, gone, [draw(roles(shape)) for _ in range(ROLES_FOR_EACH)])


def _without_links(collection: Collection, row: Row) -> Row:
    """What items point to may be made after them."""
    links = {link.near for link in collection.links.values() if not link.many}
    kinds = {link.collection_column for link in collection.links.values()}
    kept = {name: value for name, value in row.items() if collection.columns[name] != "hash"}
    for name in kept:
        if name in links | kinds:
            kept[name] = None
    return kept


def _many_to_any(collection: Collection, row: Row, rows: dict[str, list[Row]]) -> Row:
    """Return the values of many-to-any columns: those of the row, if they lead to an item."""
    values: Row = {}
    for link in collection.links.values():
        if link.collection_column is None:
            continue
        keys = {str(item[KEY]) for item in rows[link.target]}
        if row[link.collection_column] == link.target and row[link.near] in keys:
            values |= {link.near: row[link.near], link.collection_column: link.target}
        else:
            values = {link.near: None, link.collection_column: None} | values
    return values


@st.composite
def _change(draw: st.DrawFn, collection: Collection, row: Row, rows: dict[str, list[Row]]) -> Row:
    """Draw a change that links an item, and gives some of its columns other values."""
    links = {link.near for link in collection.links.values() if not link.many}
    kinds = {
        link.collection_column for link in collection.links.values()
    }  # names of collections: no other text may stand there
    plain = [
        name
        for name, kind in collection.columns.items()
        if name not in {*links, *kinds, KEY} and kind != "hash"
    ]
    others = draw(st.sets(st.sampled_from(plain), max_size=4)) if plain else set()
    values = {
        name: draw(st.none() | st.sampled_from(ROWS[collection.columns[name]]))
        for name in sorted(others)
    }
    linked = {name: row[name] for name in sorted(links - {KEY})}
    return {KEY: row[KEY], **linked, **_many_to_any(collection, row, rows), **values}


@pytest.mark.release
@pytest.mark.parametrize("number", reads.SCHEMA_NUMBERS[:SCHEMAS])
def test_the_history_shows_what_the_rights_on_its_items_show(
    stage: Stage, connection: psycopg.Connection, caller: Client, number: int
) -> None:
    shape = make_shape(stage.admin, f"h{number}", Random(f"{reads.SEED}-{number}"))

    @writes_for_each
    @given(case=cases(shape))
    def compare(case: HistoryCase) -> None:
        note(f"CMS_MODEL_SEED={reads.SEED}")
        empty(connection, shape)
        write(stage.admin, case)
        former = [row for items in case.created.values() for row in items]
        tables = tables_of(connection, shape, stored(connection, shape), former=former)
        all_records = {path: records(stage.admin, path) for path in ("/activity", "/revisions")}
        for role in case.roles:
            give(connection, [*role, *HISTORY])
            visible = {path: seen(tables, role, rows) for path, rows in all_records.items()}
            listed = {revision["id"] for revision in visible["/revisions"]}
            visible["/activity"] = [
                {**act, "revisions": [key for key in act["revisions"] if key in listed]}
                for act in visible["/activity"]
            ]
            for path, expected in visible.items():
                assert reads.comparable(records(caller, path)) == reads.comparable(expected), (
                    path,
                    role,
                )

    compare()


def empty(connection: psycopg.Connection, shape: Shape) -> None:
    names = ", ".join(f'"{name}"' for name in (*shape, "system_activity", "system_revisions"))
    connection.execute(f"TRUNCATE {names}".encode())


def write(admin: Client, case: HistoryCase) -> None:
    for name, items in case.created.items():
        if items:
            assert admin.post(f"/items/{name}", items).status == 200
    for name, items in case.changed.items():
        if items:
            answer = admin.patch(f"/items/{name}", items)
            assert answer.status == 200, answer.text
    for name, keys in case.gone.items():
        if keys:
            admin.delete(f"/items/{name}", keys)  # those that others point to may be refused


def stored(connection: psycopg.Connection, shape: Shape) -> Rows:
    """Return the rows as they are now, in the form in which they are drawn."""
    contents: Rows = {}
    for name in shape:
        rows = connection.execute(
            f'SELECT row_to_json(t)::text FROM "{name}" AS t'.encode()
        ).fetchall()
        contents[name] = [json.loads(text, parse_float=Decimal) for (text,) in rows]
    return contents


def records(client: Client, path: str) -> list[Record]:
    answer = client.get(path, sort="id", limit=-1)
    assert answer.status == 200, answer.text
    items: list[Record] = json.loads(answer.text, parse_float=Decimal)["data"]
    return items
