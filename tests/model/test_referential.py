"""Whatever foreign keys there are: the history of a deletion is what a look at
all tables before and after it shows.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from random import Random

import psycopg
import pytest

from tests.model import test_reads as reads
from tests.things import Json, Stage

pytestmark = pytest.mark.slow

SHAPES = 4
DELETIONS_FOR_EACH = 6
TABLES = 5
KEYS = range(1, 8)

KINDS = ("plain", "plain", "partitioned", "heir", "keyless", "paired")
ACTIONS = ("CASCADE", "CASCADE", "SET NULL", "SET NULL", "SET DEFAULT", "NO ACTION")

UNIQUE = {
    "keyless": "UNIQUE (id), UNIQUE (id, twin)",
    "paired": "PRIMARY KEY (id, twin), UNIQUE (id)",
}

Rows = dict[tuple[str, str], Json]
"""Rows by the tables in which they lie, and their ids."""


@dataclass(frozen=True)
class Key:
    """A foreign key from `table` by `columns` to `foreign_columns` of `target`."""

    table: str
    columns: tuple[str, ...]
    target: str
    foreign_columns: tuple[str, ...]
    action: str


@dataclass(frozen=True)
class TableGraph:
    """Tables with their kinds, the parents of those that inherit, and the foreign keys."""

    kinds: dict[str, str]
    parents: dict[str, str]
    keys: list[Key]

    def lies_in(self, collection: str) -> set[str]:
        """Return the tables whose rows are items of a collection."""
        return {
            collection,
            *(name for name, parent in self.parents.items() if parent == collection),
        }


def make_graph(random: Random, prefix: str) -> TableGraph:
    kinds: dict[str, str] = {}
    parents: dict[str, str] = {}
    keys: list[Key] = []
    for number in range(TABLES):
        name = f"{prefix}_{number}"
        plain = [other for other, kind in kinds.items() if kind == "plain"]
        kinds[name] = random.choice(KINDS if plain else ("plain", "partitioned"))
        if kinds[name] == "heir":
            parents[name] = random.choice(plain)
    for table in kinds:
        for number in range(2):
            target = random.choice(list(kinds))
            action = random.choice(ACTIONS)
            if number and random.random() < 0.5:
                keys.append(Key(table, ("a", "b"), target, ("id", "twin"), action))
            else:
                keys.append(Key(table, (f"up{number}",), target, ("id",), action))
    return TableGraph(kinds, parents, keys)


def definition(graph: TableGraph) -> str:
    """Return the SQL of all tables; ids are unique everywhere. Those of keyless tables are no
    primary keys, and those of paired ones a part of theirs.
    """
    columns = (
        "id integer NOT NULL, twin integer NOT NULL DEFAULT 0, "
        "up0 integer DEFAULT 3, up1 integer, a integer, b integer"
    )
    statements = []
    for name, kind in graph.kinds.items():
        if kind == "heir":
            inherits = f"INHERITS ({graph.parents[name]})"
            statements.append(
                f"CREATE TABLE {name} (own text, PRIMARY KEY (id), UNIQUE (id, twin)) {inherits}"
            )
        else:
            unique = UNIQUE.get(kind, "PRIMARY KEY (id), UNIQUE (id, twin)")
            parts = "PARTITION BY HASH (id)" if kind == "partitioned" else ""
            statements.append(f"CREATE TABLE {name} ({columns}, {unique}) {parts}")
        if kind == "partitioned":
            shape = (
                "CREATE TABLE {0}_{1} PARTITION OF {0} FOR VALUES WITH (MODULUS 2, REMAINDER {1})"
            )
            statements += [shape.format(name, number) for number in (0, 1)]
    for key in graph.keys:
        near = ", ".join(key.columns)
        far = ", ".join(key.foreign_columns)
        statements.append(
            f"ALTER TABLE {key.table} ADD FOREIGN KEY ({near}) REFERENCES {key.target} ({far}) ON "
            f"DELETE {key.action}"
        )
    return ";".join(statements)


def ids(graph: TableGraph, table: str) -> list[int]:
    """Rows of tables that inherit have ids of their own, so that each
    is one item of the table above.
    """
    offset = 100 if graph.kinds[table] == "heir" else 0
    return [offset * (list(graph.kinds).index(table) + 1) + key for key in KEYS]


def fill(graph: TableGraph, random: Random) -> str:
    statements = [
        f"INSERT INTO {table} (id, up0) VALUES ({key}, NULL)"
        for table in graph.kinds
        for key in ids(graph, table)
    ]
    for key in graph.keys:
        for row in ids(graph, key.table):
            if random.random() < 0.45:
                values = (str(random.choice(ids(graph, key.target))), "0")
                sets = ", ".join(
                    f"{column} = {value}"
                    for column, value in zip(key.columns, values, strict=False)
                )
                statements.append(f"UPDATE ONLY {key.table} SET {sets} WHERE id = {row}")
    return ";".join(statements)


def all_rows(
    stage: Stage, graph: TableGraph, *, without: tuple[str, list[int]] | None = None
) -> Rows | None:
    """Return all rows: as they are, or as PostgreSQL by itself leaves them
    `without` some; None if it refuses that.
    """
    rows: Rows = {}
    with psycopg.connect(stage.dsn) as connection:
        if without:
            table, keys = without
            try:
                connection.execute(f"DELETE FROM {table} WHERE id = ANY (%s)".encode(), (keys,))
            except psycopg.IntegrityError:
                return None
        for table, kind in graph.kinds.items():
            only = "" if kind == "partitioned" else "ONLY"
            for (row,) in connection.execute(
                f"SELECT to_json(t) FROM {only} {table} AS t".encode()
            ).fetchall():
                rows[table, str(row["id"])] = row
        connection.rollback()
    return rows


def history(stage: Stage, since: int) -> list[Json]:
    """Return what was done since an activity, each beside its revision."""
    activities: list[Json] = stage.value(
        "SELECT coalesce(json_agg(t), '[]') FROM ("
        " SELECT a.action, a.collection, a.item, r.id, r.data, r.delta, r.parent"
        " FROM system_activity AS a LEFT JOIN system_revisions AS r ON r.activity = a.id"
        f" WHERE a.id > {since} ORDER BY a.id) AS t"
    )
    return activities


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", range(SHAPES))
def test_the_history_of_a_deletion_is_what_has_happened(stage: Stage, number: int) -> None:
    random = Random(f"{reads.SEED}-{number}")
    graph = make_graph(random, f"r{number}")
    stage.execute(definition(graph))
    for _ in range(DELETIONS_FOR_EACH):
        stage.execute(f"TRUNCATE {', '.join(graph.kinds)} CASCADE;" + fill(graph, random))
        root = random.choice([name for name, kind in graph.kinds.items() if kind != "keyless"])
        lying = [key for name in sorted(graph.lies_in(root)) for key in ids(graph, name)]
        sent = random.sample(lying, random.randint(1, 3))
        before = all_rows(stage, graph)
        expected = all_rows(stage, graph, without=(root, sent))
        since = stage.value("SELECT max(id) FROM system_activity")
        keys = [[key, 0] for key in sent] if graph.kinds[root] == "paired" else sent
        status = stage.admin.delete(f"/items/{root}", keys).status
        after = all_rows(stage, graph)
        activities = history(stage, since)
        assert before is not None
        assert after is not None
        repeated = json.dumps(
            {"shape": definition(graph), "root": root, "sent": sent, "activities": activities},
            indent=1,
        )
        if expected is None:
            assert (status, activities, after) == (400, [], before), repeated
        else:
            assert (status, after) == (204, expected), repeated
            compare(
                graph, (before, after), activities, (root, {str(key) for key in sent}), repeated
            )


def compare(
    graph: TableGraph,
    states: tuple[Rows, Rows],
    activities: list[Json],
    root: tuple[str, set[str]],
    repeated: str,
) -> None:
    before, after = states
    items = {spot: item_of(graph, spot, root) for spot in before}
    keyed = {spot for spot in before if graph.kinds[spot[0]] != "keyless"}
    gone = Counter(items[spot] for spot in keyed if spot not in after)
    assert (
        Counter(
            (activity["collection"], activity["item"])
            for activity in activities
            if activity["action"] == "delete"
        )
        == gone
    ), repeated
    changed = {items[spot] for spot in keyed if spot in after and after[spot] != before[spot]}
    assert {
        (activity["collection"], activity["item"])
        for activity in activities
        if activity["action"] == "update"
    } == changed, repeated
    deleted = {
        activity["id"]: activity for activity in activities if activity["action"] == "delete"
    }
    for spot in keyed:
        own = [
            activity
            for activity in activities
            if (activity["collection"], activity["item"]) == items[spot]
        ]
        if spot not in after:
            assert [activity["data"] for activity in own] == [
                with_names_of(before[spot], own[0]["data"])
            ], repeated
            is_root = items[spot][0] == root[0] and spot[1] in root[1]
            assert (own[0]["parent"] is None) == is_root, repeated
        elif own:
            assert own[-1]["data"] == after[spot], repeated
            delta = {name: value for activity in own for name, value in activity["delta"].items()}
            assert delta == {name: after[spot][name] for name in delta}, repeated
            assert set(delta) == {
                name for name in after[spot] if after[spot][name] != before[spot][name]
            }, repeated
        for activity in own:
            assert activity["parent"] is None or causes(
                graph, before[spot], spot, deleted[activity["parent"]]
            ), repeated


def item_of(
    graph: TableGraph, spot: tuple[str, str], root: tuple[str, set[str]]
) -> tuple[str, str]:
    """What is deleted as an item of a table above is recorded there, all else
    under the table in which it lies.
    """
    table, key = spot
    item = f"{key},0" if graph.kinds[table] == "paired" else key
    return (root[0] if table in graph.lies_in(root[0]) and key in root[1] else table), item


def with_names_of(row: Json, data: Json) -> Json:
    """A row as an item of a table above has not the columns of its own."""
    return {name: value for name, value in row.items() if name in data or name != "own"}


def causes(graph: TableGraph, row: Json, spot: tuple[str, str], cause: Json) -> bool:
    """Whether a row pointed to the row of a revision, or to a keyless
    row, which may have pointed there.
    """
    for key in graph.keys:
        values = [row[column] for column in key.columns]
        if key.table != spot[0] or None in values:
            continue
        if graph.kinds[key.target] == "keyless" or values[0] == cause["data"]["id"]:
            return True
    return False
