"""Random shapes, made through the API, and their rows, put in by SQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import psycopg

from tests.client import Client
from tests.model.pools import CSVS, KEYS, NOWHERE, ROWS, TEXTS
from tests.model.shape import KEY, Collection, Link, Row, Shape, Tables
from tests.model.values import rank, read

NAMES = {kind: (kind,) for kind in ROWS} | {"string": ("title", "order"), "integer": ("n", "Rank")}


@dataclass(slots=True)
class CollectionBuilder:
    """A collection that grows: its relations are added one by one."""

    name: str
    columns: dict[str, str]
    links: dict[str, Link] = field(default_factory=dict)
    sort_field: str | None = None

    def done(self) -> Collection:
        return Collection(self.name, self.columns, self.links, self.sort_field)


def make_shape(api: Client, prefix: str, random: Random) -> Shape:
    """Make two to four collections with relations of every kind between them, and a junction."""
    builders = [
        _make_collection(api, f"{prefix}_{letter}", random)
        for letter in "abcd"[: random.randint(2, 4)]
    ]
    for number in range(len(builders) + random.randint(1, 3)):
        many = builders[number % len(builders)]
        _relate(api, many, random.choice(builders), f"to_{number}", listed=random.random() < 0.8)
    _relate_to_any(api, builders[0], random.sample(builders, 2))
    junction = _make_junction(api, f"{prefix}_j", random.choice(builders), random.choice(builders))
    return {builder.name: builder.done() for builder in (*builders, junction)}


def _make_collection(api: Client, name: str, random: Random) -> CollectionBuilder:
    names = [(name, kind) for kind in ROWS for name in NAMES[kind]]
    columns = dict(random.sample(names, random.randint(5, len(names))))
    columns = {
        KEY: random.choice(("integer", "integer", "integer", "uuid", "string")),
        "title": "string",
        **columns,
    }
    sort_field = random.choice(("title", None, None))
    _create(api, name, columns, sort_field)
    return CollectionBuilder(name, columns, sort_field=sort_field)


def _create(api: Client, name: str, columns: Mapping[str, str], sort_field: str | None) -> None:
    fields = [{"field": column, "type": kind} for column, kind in columns.items() if column != KEY]
    key = {"field": KEY, "type": columns[KEY], "schema": {"is_primary_key": True}}
    meta = {"sort_field": sort_field}
    answer = api.post(
        "/collections", {"collection": name, "schema": {}, "meta": meta, "fields": [key, *fields]}
    )
    assert answer.status == 200, answer.text


def _relate(
    api: Client, many: CollectionBuilder, one: CollectionBuilder, column: str, *, listed: bool
) -> None:
    kind = one.columns[KEY]
    list_field = f"{many.name}_{column}" if listed else None
    assert api.post(f"/fields/{many.name}", {"field": column, "type": kind}).status == 200
    relation = {
        "collection": many.name,
        "field": column,
        "related_collection": one.name,
        "schema": {},
    }
    answer = api.post("/relations", relation | {"meta": {"one_field": list_field}})
    assert answer.status == 200, answer.text
    _link(many, one, column, list_field)


def _link(
    many: CollectionBuilder, one: CollectionBuilder, column: str, list_field: str | None
) -> None:
    many.columns[column] = one.columns[KEY]
    many.links[column] = Link(one.name, near=column, far=KEY, many=False)
    if list_field:
        one.links[list_field] = Link(many.name, near=KEY, far=column, many=True)


def _relate_to_any(api: Client, many: CollectionBuilder, arms: list[CollectionBuilder]) -> None:
    """Make a many-to-any relation; `kind` tells which of the arms `any` leads to."""
    for column in ("any", "kind"):
        assert api.post(f"/fields/{many.name}", {"field": column, "type": "string"}).status == 200
        many.columns[column] = "string"
    meta = {"one_collection_field": "kind", "one_allowed_collections": [arm.name for arm in arms]}
    body = {"collection": many.name, "field": "any", "related_collection": None, "meta": meta}
    answer = api.post("/relations", body)
    assert answer.status == 200, answer.text
    for arm in arms:
        many.links[f"any:{arm.name}"] = Link(
            arm.name, near="any", far=KEY, many=False, collection_column="kind"
        )


def _make_junction(
    api: Client, name: str, near: CollectionBuilder, far: CollectionBuilder
) -> CollectionBuilder:
    """Make a many-to-many relation in one call; from the far side it is listed too."""
    junction = CollectionBuilder(name, {KEY: "integer"})
    meta = {"junction_collection": name, "junction_field": "far_id", "one_field": "linked_by"}
    body = {
        "collection": near.name,
        "field": "linked",
        "related_collection": far.name,
        "meta": meta,
    }
    answer = api.post("/relations", body)
    assert answer.status == 200, answer.text
    _link(junction, near, f"{near.name}_id", "linked")
    _link(junction, far, "far_id", "linked_by")
    return junction


# Rows


def load(connection: psycopg.Connection, shape: Shape, rows: Mapping[str, list[Row]]) -> None:
    """Replace all rows of a shape; rows may point to each other in cycles."""
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")
        for name, items in rows.items():
            connection.execute(f'DELETE FROM "{name}"'.encode())
            if items:
                statement = (
                    f'INSERT INTO "{name}" SELECT * FROM '
                    f'json_populate_recordset(NULL::"{name}", %s)'
                )
                connection.execute(statement.encode(), [json.dumps(items)])


def tables_of(
    connection: psycopg.Connection,
    shape: Shape,
    rows: Mapping[str, list[Row]],
    *,
    former: Iterable[Row] = (),
) -> Tables:
    """Return the model's view of rows in the form of JSON; keys of `former`
    rows may stand in other rows still.
    """
    present = (row for items in rows.values() for row in items)
    keys = [str(row[KEY]) for row in (*present, *former)]
    return with_rows(Tables(shape, {}, *dialect(connection, [*shape, *keys])), rows)


def with_rows(tables: Tables, rows: Mapping[str, list[Row]]) -> Tables:
    """Return the tables with these rows instead of their own, in the order of their keys."""
    typed = {
        name: [_typed(tables.shape[name], row) for row in items] for name, items in rows.items()
    }
    for name, items in typed.items():
        kind = tables.shape[name].columns[KEY]
        items.sort(key=lambda row, kind=kind: rank(tables, kind, row[KEY]))  # type: ignore[misc]
    return replace(tables, rows=typed)


def _typed(collection: Collection, row: Row) -> Row:
    return {column: _value(collection.columns[column], value) for column, value in row.items()}


def _value(kind: str, value: Any) -> Any:
    return None if value is None else read(kind, value)


def dialect(connection: psycopg.Connection, more: list[str]) -> tuple[dict[str, int], bool]:
    """Return how the database ranks texts (a property of its collation),
    and whether search knows accents.
    """
    texts = [*dict.fromkeys((*TEXTS, *CSVS, *KEYS, "secret", ",", "b", NOWHERE, *more))]
    ranked_texts = connection.execute(
        "SELECT found, dense_rank() OVER (ORDER BY found) FROM unnest(%s::text[]) AS found", [texts]
    )
    ranks = {text: int(number) for text, number in ranked_texts.fetchall()}
    unaccent = connection.execute("SELECT FROM pg_extension WHERE extname = 'unaccent'").fetchone()
    return ranks, unaccent is None
