"""Rules whose literals Python takes for equal, as 1 and true, are two rules all the same."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Stage, Table, field

Json = dict[str, Any]

NUMBER: Json = {"meta.level": {"_eq": 1}}
FLAG: Json = {"meta.level": {"_eq": True}}

THINGS = (field("title", "string"), field("price", "integer"), field("meta", "json"))


@pytest.fixture
def rows(things: Table) -> tuple[Json, Json]:
    """Two items; the level of the first is a number, that of the second a boolean."""
    number, flag = things.add(
        {"title": "a", "price": 1, "meta": {"level": 1}},
        {"title": "b", "price": 2, "meta": {"level": True}},
    )
    return number, flag


@pytest.mark.parametrize("rules", list(permutations([NUMBER, FLAG])))
def test_each_permission_shows_its_own_fields_in_its_own_items(
    stage: Stage, things: Table, rows: tuple[Json, Json], rules: tuple[Json, Json]
) -> None:
    caller = member(
        stage,
        may(things.name, "id", "title", permissions=rules[0]),
        may(things.name, "id", "price", permissions=rules[1]),
    )
    shown = caller.get(things.path, fields="title,price", sort="id").data
    expected: list[Json] = [{"title": "a", "price": None}, {"title": None, "price": 2}]
    if rules[0] is FLAG:
        expected = [{"title": None, "price": 1}, {"title": "b", "price": None}]
    assert shown == expected


@pytest.mark.parametrize(("first", "second"), list(permutations([NUMBER, FLAG])))
def test_each_changed_field_needs_the_rule_of_its_own_permission(
    stage: Stage, things: Table, rows: tuple[Json, Json], first: Json, second: Json
) -> None:
    caller = member(
        stage,
        may(things.name),
        may(things.name, "title", action="update", permissions=first),
        may(things.name, "price", action="update", permissions=second),
    )
    title_row, price_row = rows if first is NUMBER else rows[::-1]

    def statuses(row: Json, change: Json) -> list[int]:
        """The status of one statement, and that of a transaction."""
        many = {"keys": [row["id"]], "data": change}
        one = caller.patch(f"{things.path}/{row['id']}", change)
        return [one.status, caller.patch(things.path, many).status]

    assert statuses(title_row, {"title": "x"}) == [200, 200]
    assert statuses(title_row, {"price": 9}) == [403, 403]
    assert statuses(price_row, {"price": 8}) == [200, 200]
    assert statuses(price_row, {"title": "y"}) == [403, 403]
    for row in rows:
        assert statuses(row, {"title": "z", "price": 7}) == [403, 403]


def creator(stage: Stage, things: Table) -> Client:
    """A caller who makes items of two titles, each under a rule of its own."""
    return member(
        stage,
        may(things.name),
        may(things.name, action="create", permissions=NUMBER, validation={"title": {"_eq": "a"}}),
        may(things.name, action="create", permissions=FLAG, validation={"title": {"_eq": "b"}}),
    )


def made(title: str, level: object) -> Json:
    return {"title": title, "meta": {"level": level}}


def test_a_new_item_fulfils_the_rule_of_the_permission_that_allows_it(
    stage: Stage, things: Table
) -> None:
    """The statements of both are alike but for the literal of the rule."""
    for titles in ("ab", "ba"):
        caller = creator(stage, things)
        for title in titles:
            expected = 1 if title == "a" else True
            other = True if title == "a" else 1
            assert caller.post(things.path, made(title, expected)).status == 200
            assert caller.post(things.path, made(title, other)).status == 403


def test_each_of_several_new_items_fulfils_its_own_rule(stage: Stage, things: Table) -> None:
    caller = creator(stage, things)
    assert caller.post(things.path, [made("a", 1), made("b", True)]).status == 200
    for wrong in ([made("a", 1), made("b", 1)], [made("b", True), made("a", True)]):
        assert caller.post(things.path, wrong).status == 403


def test_a_rule_that_is_changed_to_one_that_looks_equal_counts_at_once(
    stage: Stage, things: Table, rows: tuple[Json, Json]
) -> None:
    caller = member(
        stage,
        may(things.name),
        may(things.name, "title", action="update", permissions=NUMBER),
        may(things.name, action="delete", permissions=NUMBER),
    )
    number, flag = rows
    for rule, allowed, refused in ((NUMBER, number, flag), (FLAG, flag, number)):
        stage.execute(
            f"UPDATE system_permissions SET permissions = '{_text(rule)}' "
            f"WHERE collection = '{things.name}' AND action <> 'read'"
        )
        for _ in range(2):
            assert caller.patch(f"{things.path}/{allowed['id']}", {"title": "x"}).status == 200
            assert caller.patch(f"{things.path}/{refused['id']}", {"title": "x"}).status == 403
            assert caller.delete(f"{things.path}/{refused['id']}").status == 403


def _text(rule: Json) -> str:
    return '{"meta.level": {"_eq": true}}' if rule is FLAG else '{"meta.level": {"_eq": 1}}'
