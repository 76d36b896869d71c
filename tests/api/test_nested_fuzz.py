"""Payloads of any shape at the fields of relations: refused or written,
and never a fault of the service.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.api.nesting import make_relations
from tests.client import Client
from tests.things import Stage

ROUNDS = 150
ODD: list[object] = [
    None,
    0,
    -1,
    1,
    2,
    3,
    10**20,
    1.5,
    True,
    "",
    "1",
    "x",
    [],
    {},
    [[]],
    [None],
    {"": 1},
    "\ud7ff",
]
# What each field of a collection leads to: another collection, several of one (in a list), or a
# value.
FIELDS: dict[str, dict[str, object]] = {
    "posts": {
        "title": "x",
        "author": "people",
        "tags": ["posts_tags"],
        "comments": ["comments"],
        "steps": ["steps"],
        "sections": ["sections"],
    },
    "people": {"name": None, "pin": "1", "boss": "people", "staff": ["people"], "posts": ["posts"]},
    "posts_tags": {"posts_id": "posts", "tags_id": "tags"},
    "tags": {"name": "t", "posts": ["posts_tags"], "size": 1},
    "comments": {"text": "c", "post": "posts"},
    "steps": {"text": "s", "place": 1, "post": "posts"},
    "sections": {"post": "posts", "item": "headings", "kind": "headings", "sort": 1},
    "headings": {"title": "h"},
}


@pytest.fixture(scope="module", autouse=True)
def nested_rows(stage: Stage) -> None:
    make_relations(stage.admin)
    for name, row in (
        ("posts", {}),
        ("people", {}),
        ("tags", {"name": "t"}),
        ("comments", {}),
        ("headings", {}),
    ):
        assert stage.admin.post(f"/items/{name}", [row] * 8).status == 200


def item(random: Random, collection: str, depth: int) -> dict[str, object]:
    """Return an item of a collection, now and then with what does not belong there."""
    fields = FIELDS[collection]
    item = {name: value(random, fields[name], depth) for name in fields if random.random() < 0.4}
    if random.random() < 0.4:
        item["id"] = random.randrange(1, 12)
    return item


def value(random: Random, kind: object, depth: int) -> object:
    if random.random() < 0.03:
        return random.choice(ODD)
    if isinstance(kind, list):
        return listed(random, kind[0], depth)
    if kind not in FIELDS:
        return kind
    return (
        item(random, str(kind), depth - 1)
        if depth and random.random() < 0.6
        else random.randrange(1, 8)
    )


def listed(random: Random, collection: str, depth: int) -> object:
    """Return a whole new state, or a change."""
    elements = [
        value(random, collection, depth) for _ in range(random.randrange(4) if depth else 0)
    ]
    if random.random() < 0.6:
        return elements
    new_items = [
        item(random, collection, depth - 1) for _ in range(random.randrange(2) if depth else 0)
    ]
    return {
        "create": new_items,
        "update": elements,
        "delete": [random.randrange(1, 9)] if random.random() < 0.2 else [],
    }


@pytest.mark.release
@pytest.mark.parametrize("seed", range(3))
def test_no_payload_breaks_the_service(admin: Client, seed: int) -> None:
    random = Random(seed)
    passed = 0
    for _ in range(ROUNDS):
        collection = random.choice(list(FIELDS))
        body: object = item(random, collection, 3)
        if random.random() < 0.3:
            body = [body, item(random, collection, 2)]
        method, path = random.choice(
            [("POST", ""), ("PATCH", ""), ("PATCH", f"/{random.randrange(1, 8)}")]
        )
        answer = admin.send(method, f"/items/{collection}{path}", body)
        assert answer.status < 500, (method, collection, body, answer.text)
        passed += answer.status == 200
    assert passed > ROUNDS / 10
