"""Updates that several permissions allow: one statement answers as a transaction does."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.statements import counted, counted_in_transactions
from tests.things import Stage, Table, field

DRAFT = {"status": {"_eq": "draft"}}
CHEAP = {"price": {"_lt": 10}}
NOTED = {"note": {"_neq": "secret"}}
"""A rule that is neither true nor false for a row without a note."""


THINGS = (
    field("title", "string"),
    field("status", "string"),
    field("note", "string"),
    field("price", "integer"),
)


def editor(stage: Stage, name: str, *, reads: object = None) -> Client:
    """A caller whose permissions cover different fields in different rows."""
    return member(
        stage,
        may(name, "id", "title", "status", "note", "price", permissions=reads),
        may(name, "title", "status", action="update", permissions=DRAFT),
        may(name, "title", "price", action="update", permissions=CHEAP),
        may(name, "note", action="update", permissions=NOTED),
    )


STORED = [
    {"title": "a", "status": status, "price": price, "note": note}
    for status, price, note in product(["draft", "live"], [5, 50], [None, "secret", "open"])
]
CHANGES: list[dict[str, Any]] = [
    {"title": "x"},
    {"status": "draft"},
    {"status": "live"},
    {"price": 5},
    {"price": 50},
    {"note": "secret"},
    {"note": "x"},
    {"title": "x", "price": 7},
    {"title": "x", "status": "live"},
    {"title": "x", "note": "x"},
    {"status": "draft", "price": 1, "note": "x"},
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("reads", [None, CHEAP, DRAFT])
def test_one_statement_answers_as_a_transaction_does(
    stage: Stage,
    things: Table,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    reads: object,
) -> None:
    caller = editor(stage, things.name, reads=reads)
    rows = things.add(*STORED, *STORED)
    for first, second in zip(rows[: len(STORED)], rows[len(STORED) :], strict=True):
        with counted_in_transactions(monkeypatch) as seen:
            answer = caller.patch(f"{things.path}/{first['id']}", change)
        # Only an error that has to be found out about takes a transaction.
        assert not seen, change
        other = caller.patch(things.path, {"keys": [second["id"]], "data": change})
        assert _outcome(answer) == _outcome(other), (first, change)
    contents = [
        {name: value for name, value in row.items() if name != "id"}
        for row in things.read("sort=id&limit=-1").data
    ]
    assert contents[: len(STORED)] == contents[len(STORED) :]


def _outcome(answer: Answer) -> object:
    if answer.status != 200:
        return answer.status, answer.text
    item = answer.data[0] if isinstance(answer.data, list) else answer.data
    return {name: value for name, value in item.items() if name != "id"}


def test_an_allowed_update_is_one_statement(
    stage: Stage, things: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = editor(stage, things.name)
    (row,) = things.add({"title": "a", "status": "draft", "price": 5})
    path = f"{things.path}/{row['id']}"
    assert caller.patch(path, {"title": "b", "price": 6}).status == 200
    with counted(monkeypatch) as seen:
        assert caller.patch(path, {"title": "c", "price": 7}).data["title"] == "c"
    assert len(seen) == 1


def test_a_rule_over_a_relation_still_takes_a_transaction(
    stage: Stage, admin: Client, things: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = stage.empty_table(field("name", "string"), field("things", "integer"))
    relation = {
        "collection": owners.name,
        "field": "things",
        "related_collection": things.name,
        "meta": {"one_field": "owners"},
    }
    assert admin.post("/relations", relation).status == 200
    updates = (
        may(things.name, "title", action="update", permissions=DRAFT),
        may(things.name, "note", action="update", permissions={"owners": {"name": {"_eq": "me"}}}),
    )
    caller = member(stage, may(things.name), *updates)
    mine, other = things.add({"status": "live"}, {"status": "live"})
    owners.add({"name": "me", "things": mine["id"]})
    with counted_in_transactions(monkeypatch) as seen:
        assert caller.patch(f"{things.path}/{mine['id']}", {"note": "x"}).data["note"] == "x"
    assert seen
    assert caller.patch(f"{things.path}/{mine['id']}", {"title": "x"}).status == 403
    assert caller.patch(f"{things.path}/{other['id']}", {"note": "x"}).status == 403
    # To a caller who reads neither, the rule over the relation tells 403 from 404.
    blind = member(stage, may(things.name, permissions=CHEAP), *updates)
    for row, status in ((mine, 403), (other, 404)):
        with counted_in_transactions(monkeypatch) as seen:
            assert blind.patch(f"{things.path}/{row['id']}", {"title": "x"}).status == status
        assert seen


def test_presets_of_one_of_several_permissions_still_follow_the_row(
    stage: Stage, things: Table
) -> None:
    caller = member(
        stage,
        may(things.name),
        may(things.name, "title", action="update", permissions=DRAFT, presets={"note": "draft"}),
        may(things.name, "title", action="update", permissions=CHEAP, presets={"note": "cheap"}),
    )
    draft, cheap = things.add({"status": "draft", "price": 50}, {"status": "live", "price": 5})
    for row, note in ((draft, "draft"), (cheap, "cheap")):
        changed = caller.patch(f"{things.path}/{row['id']}", {"title": "x"}).data
        assert changed["note"] == note
