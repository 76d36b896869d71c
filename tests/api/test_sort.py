"""POST /utils/sort/{collection}: an item takes the place of another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Json, Stage, Table, field, table


def make(api: Client, sort_values: list[int | None], kind: str = "integer") -> Table:
    """Make a collection with items 1, 2, 3 … that have these sort values."""
    things = table(api, field("sort", kind), field("title", "string"), sort_field="sort")
    things.add(*({"sort": position} for position in sort_values))
    return things


def move(things: Table, item: object, to: object) -> int:
    return things.api.post(f"/utils/sort/{things.name}", {"item": item, "to": to}).status


def order(things: Table) -> list[int]:
    return things.column("id")


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    "sort_values",
    [[1, 2, 3, 4, 5], [10, 20, 30, 40, 50], [None] * 5, [7] * 5, [-3, 0, None, None, None]],
)
@pytest.mark.parametrize(
    ("item", "to", "expected"),
    [
        (1, 3, [2, 3, 1, 4, 5]),
        (4, 2, [1, 4, 2, 3, 5]),
        (5, 1, [5, 1, 2, 3, 4]),
        (1, 5, [2, 3, 4, 5, 1]),
        (3, 3, [1, 2, 3, 4, 5]),
    ],
)
def test_an_item_takes_the_place_of_another(
    stage: Stage, sort_values: list[int | None], item: int, to: int, expected: list[int]
) -> None:
    things = stage.empty_table(field("sort", "integer"), sort_field="sort")
    things.add(*({"sort": position} for position in sort_values))
    assert move(things, item, to) == 204
    assert order(things) == expected
    positions = things.column("sort")
    assert len(set(positions)) == 5
    assert None not in positions


def test_only_what_lies_between_is_written(stage: Stage, admin: Client) -> None:
    things = make(admin, [1, 2, 3, 4, 5])
    before = stage.value(f"SELECT array_agg(xmin::text ORDER BY id) FROM {things.name}")
    assert move(things, 2, 3) == 204
    after = stage.value(f"SELECT array_agg(xmin::text ORDER BY id) FROM {things.name}")
    assert [
        number for number, (old, new) in enumerate(zip(before, after, strict=True), 1) if old != new
    ] == [2, 3]


def history(things: Table) -> list[Json]:
    """Return what has been changed of items, after they were made."""
    params = {
        "filter[collection]": things.name,
        "filter[activity][action]": "update",
        "sort": "item",
    }
    entries: list[Json] = things.api.get("/revisions", **params, fields="*,activity.*").data
    return entries


def test_every_item_that_moves_is_in_the_history_as_part_of_the_move(admin: Client) -> None:
    things = make(admin, [1, 2, 3, 4, 5])
    me = admin.get("/users/me").data["id"]
    assert move(things, 4, 2) == 204
    moves = {entry["item"]: entry for entry in history(things)}
    assert {key: entry["delta"] for key, entry in moves.items()} == {
        "2": {"sort": 3},
        "3": {"sort": 4},
        "4": {"sort": 2},
    }
    assert moves["4"]["data"] == {"id": 4, "sort": 2, "title": None}
    assert (moves["4"]["activity"]["user"], moves["4"]["activity"]["ip"]) == (me, "127.0.0.1")
    assert [moves[key]["parent"] for key in "234"] == [moves["4"]["id"], moves["4"]["id"], None]


def test_items_that_are_numbered_first_are_in_the_history(admin: Client) -> None:
    things = make(admin, [None, None, 7])
    assert move(things, 3, 2) == 204
    deltas = [(entry["item"], entry["delta"]["sort"]) for entry in history(things)]
    assert deltas == [("1", 2), ("1", 1), ("2", 3), ("2", 2), ("3", 1), ("3", 3)]


@pytest.mark.parametrize(("accountability", "count"), [("activity", 2), (None, 0)])
def test_the_accountability_of_a_collection_decides_whether_moves_are_recorded(
    admin: Client, accountability: str | None, count: int
) -> None:
    fields = field("sort", "integer"), field("title", "string")
    things = table(admin, *fields, sort_field="sort", accountability=accountability)
    things.add({"sort": 1}, {"sort": 2})
    assert move(things, 2, 1) == 204
    params = {"filter[collection]": things.name, "filter[action]": "update"}
    assert len(admin.get("/activity", **params).data) == count
    assert history(things) == []


@pytest.mark.release
def test_many_moves_are_those_of_a_list(admin: Client) -> None:
    random = Random(7)
    things = make(admin, Random(3).choices([None, 1, 2, 5, 9], k=12))
    model = order(things)
    for _ in range(40):
        item = random.choice(model)
        to = random.choice(model)
        position = model.index(to)
        model.remove(item)
        model.insert(position, item)
        assert move(things, item, to) == 204
        assert order(things) == model


@pytest.mark.release
def test_moves_at_once_leave_every_item_a_place_of_its_own(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    things = make(make_client(database_pool_size=8).bearing(admin_token), [None] * 10)
    moves = [(n % 10 + 1, n * 3 % 10 + 1) for n in range(40)]
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda pair: move(things, *pair), moves)) == {204}
    assert sorted(things.column("sort")) == list(range(1, 11))


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["item", "to"]),
        ({"item": 1}, ["to"]),
        ({"item": True, "to": []}, ["item", "to"]),
        ({"item": 1, "to": 2, "x": 3}, ["x"]),
    ],
)
def test_a_body_without_both_keys_is_refused(admin: Client, body: Any, fields: list[str]) -> None:
    things = make(admin, [1, 2])
    answer = admin.post(f"/utils/sort/{things.name}", body)
    assert (answer.status, [error["field"] for error in answer.errors]) == (400, fields)


def test_what_cannot_be_sorted_is_reported(stage: Stage, admin: Client) -> None:
    things = make(admin, [1, 2])
    assert move(things, 1, 99) == 404
    assert move(things, "x", 1) == 404
    assert admin.post("/utils/sort/nowhere", {"item": 1, "to": 2}).status == 404
    assert stage.anonymous.post(f"/utils/sort/{things.name}", {"item": 1, "to": 2}).status == 403
    assert admin.post("/utils/sort/system_fields", {"item": 1, "to": 2}).status == 403
    unsorted = table(admin, field("title", "string"))
    unsorted.add({}, {})
    answer = admin.post(f"/utils/sort/{unsorted.name}", {"item": 1, "to": 2})
    assert (answer.status, answer.codes, answer.errors[0]["collection"]) == (
        400,
        ["INVALID_PAYLOAD"],
        unsorted.name,
    )
    assert move(make(admin, [None], kind="decimal"), 1, 1) == 400


def test_the_sort_field_gets_an_index_once(stage: Stage, admin: Client) -> None:
    things = table(admin, field("place", "integer"), field("name", "string"))
    for _ in range(2):
        assert (
            admin.patch(f"/collections/{things.name}", {"meta": {"sort_field": "place"}}).status
            == 200
        )
    assert admin.patch(f"/fields/{things.name}/name", {"meta": {"note": "x"}}).status == 200
    indexes = stage.value(
        f"SELECT count(*) FROM pg_index WHERE indrelid = '{things.name}'::regclass"
    )
    assert indexes == 2
    assert admin.get(f"/fields/{things.name}/place").data["schema"]["is_indexed"] is True


def test_who_sorts_may_change_the_place_of_both_items(stage: Stage, admin: Client) -> None:
    things = table(admin, field("place", "integer"), field("owner", "string"), sort_field="place")
    things.add({"owner": "me"}, {"owner": "me"}, {"owner": "you"})
    path = f"/utils/sort/{things.name}"
    mine = {"owner": {"_eq": "me"}}
    caller = member(
        stage, may(things.name), may(things.name, "place", action="update", permissions=mine)
    )
    assert caller.post(path, {"item": 1, "to": 2}).status == 204
    assert things.column("id") == [2, 1, 3]
    assert caller.post(path, {"item": 1, "to": 3}).status == 403
    assert caller.post(path, {"item": 1, "to": 9}).status == 404
    assert member(stage, may(things.name)).post(path, {"item": 1, "to": 2}).status == 403
    other = member(stage, may(things.name), may(things.name, "owner", action="update"))
    assert other.post(path, {"item": 1, "to": 2}).status == 403
    assert things.column("id") == [2, 1, 3]
