"""Random nested writes beside a plain model of what they mean: the state afterwards is the same."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.client import Client
from tests.things import Json, Table, table
from tests.things import field as column

STEPS = 40


@dataclass
class Node:
    """A row of the model: what it is called, its value, the node above, and the names of its
    tags.
    """

    value: int | None = None
    above: str | None = None
    tags: Counter[str] = field(default_factory=Counter)


@dataclass
class NodeModel:
    """Nodes by name, with keys as the database gave them; `random` makes
    payloads and `state` follows them.
    """

    random: Random
    state: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    names = itertools.count()

    def item(self, depth: int, name: str | None = None) -> tuple[str, Json]:
        """Return a node's name and a payload for it: of a new node, or of the one with the name."""
        payload: Json = {}
        if name is None:
            name = f"n{next(self.names)}"
            self.state[name] = Node()
            payload["name"] = name
        self.used.add(name)
        if self.random.random() < 0.6:
            payload["value"] = self.state[name].value = self.random.randrange(100)
        if depth and self.random.random() < 0.5:
            payload["above"] = self.above(depth, name)
        if depth and self.random.random() < 0.6:
            payload["below"] = (
                self.whole(depth, name) if self.random.random() < 0.6 else self.changes(depth, name)
            )
        if self.random.random() < 0.4:
            payload["tags"] = self.tagged(name)
        return name, payload

    def related(self, depth: int, choices: list[str]) -> tuple[str, Json]:
        """Return a new node, or one of the choices as an object with its key."""
        free = [name for name in choices if name in self.keys and name not in self.used]
        if not free or self.random.random() < 0.5:
            return self.item(depth - 1)
        name, payload = self.item(depth - 1, self.random.choice(free))
        return name, {**payload, "id": self.keys[name]}

    def above(self, depth: int, name: str) -> object:
        if name in self.used_below:
            return self.keys.get(self.state[name].above or "")
        if self.random.random() < 0.3:
            self.state[name].above = None
            return None
        above, payload = self.related(depth, self.orphans())
        self.state[name].above = above
        return payload

    def orphans(self) -> list[str]:
        return [name for name, node in self.state.items() if node.above is None]

    def children(self, name: str) -> list[str]:
        return [
            child for child, node in self.state.items() if node.above == name and child in self.keys
        ]

    @property
    def used_below(self) -> set[str]:
        return self.used & {name for name, node in self.state.items() if node.above is not None}

    def whole(self, depth: int, name: str) -> list[object]:
        """Return an array that is the whole new state; what it leaves out is unlinked."""
        present = [child for child in self.children(name) if child not in self.used]
        kept = [child for child in present if self.random.random() < 0.5]
        for child in present:
            self.used.add(child)
            self.state[child].above = name if child in kept else None
        elements: list[object] = [self.keys[child] for child in kept]
        return elements + self.new_below(depth, name)

    def changes(self, depth: int, name: str) -> Json:
        gone = [
            child
            for child in self.children(name)
            if child not in self.used and self.random.random() < 0.4
        ]
        for child in gone:
            self.used.add(child)
            self.state[child].above = None
        return {
            "create": self.new_below(depth, name),
            "delete": [self.keys[child] for child in gone],
        }

    def new_below(self, depth: int, name: str) -> list[object]:
        elements: list[object] = []
        for _ in range(self.random.randrange(3)):
            child = f"n{next(self.names)}"
            self.state[child] = Node(above=name)
            _, payload = self.item(depth - 1, child)
            payload.pop("above", None)
            self.state[child].above = name
            elements.append({**payload, "name": child})
        return elements

    def tagged(self, name: str) -> list[object]:
        chosen = [f"m{self.random.randrange(6)}" for _ in range(self.random.randrange(4))]
        self.state[name].tags = Counter(chosen)
        return [
            {
                "tags_id": self.tags[tag]
                if self.random.random() < 0.5
                else {"id": self.tags[tag], "name": tag}
            }
            for tag in chosen
        ]


def make_tables(admin: Client) -> tuple[Table, Table]:
    nodes = table(
        admin, column("name", "string"), column("value", "integer"), column("above", "integer")
    )
    tags = table(admin, column("name", "string"))
    relations: list[Json] = [
        {
            "collection": nodes.name,
            "field": "above",
            "related_collection": nodes.name,
            "meta": {"one_field": "below"},
        },
        {
            "collection": nodes.name,
            "field": "tags",
            "related_collection": tags.name,
            "meta": {"junction_collection": f"{nodes.name}_marks"},
        },
    ]
    for relation in relations:
        answer = admin.post("/relations", relation)
        assert answer.status == 200, answer.text
    return nodes, tags


def rows_by_name(nodes: Table, far: str) -> dict[str, tuple[object, ...]]:
    rows = nodes.read(f"fields=name,value,above.name,tags.{far}.name&limit=-1").data
    return {
        row["name"]: (
            row["value"],
            row["above"] and row["above"]["name"],
            sorted(link[far]["name"] for link in row["tags"]),
        )
        for row in rows
    }


@pytest.mark.release
@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_is_what_was_meant(admin: Client, seed: int) -> None:
    nodes, tags = make_tables(admin)
    far = f"{tags.name}_id"
    model = NodeModel(Random(seed))
    model.tags = {
        tag["name"]: tag["id"] for tag in tags.add(*({"name": f"m{n}"} for n in range(6)))
    }
    for step in range(STEPS):
        model.used.clear()
        known = model.random.choice([None, *model.keys])
        name, payload = model.item(3, known)
        sent = _renamed(payload, far)
        path = f"{nodes.path}/{model.keys[known]}" if known else nodes.path
        answer = admin.patch(path, sent) if known else admin.post(path, sent)
        assert answer.status == 200, (step, name, sent, answer.text)
        expected = {
            key: (n.value, n.above, sorted(n.tags.elements())) for key, n in model.state.items()
        }
        assert rows_by_name(nodes, far) == expected, (step, sent)
        model.keys = {row["name"]: row["id"] for row in nodes.read("fields=id,name&limit=-1").data}


def _renamed(value: object, far: str) -> object:
    """Give the junction's field the name that it has in this database."""
    if isinstance(value, list):
        return [_renamed(item, far) for item in value]
    if isinstance(value, dict):
        return {
            far if key == "tags_id" else key: _renamed(inner, far) for key, inner in value.items()
        }
    return value
