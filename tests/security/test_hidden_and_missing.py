"""A write to a row that the caller may not see is answered like one to a row that is not there."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.client import Answer, Client
from tests.members import may, member_of, new_role
from tests.things import Stage, field, table

Json = dict[str, Any]
SEEN = {"title": {"_eq": "seen"}}
CHANGES: tuple[Json, ...] = (
    {"email": "mine@example.com"},
    {"password": "a long enough password"},
    {"password": "x"},
    {"token": None},
    {"tfa_secret": None},
    {"status": "suspended"},
    {"title": "seen"},
    {"title": 5},
    {},
)


@pytest.fixture(scope="module", autouse=True)
def password_policy(stage: Stage) -> None:
    assert stage.admin.patch("/settings", {"auth_password_policy": "^.{8,}$"}).status == 200


@pytest.fixture(scope="module")
def clerk(stage: Stage) -> Client:
    """Somebody who may do everything with users of one title, and sees no others."""
    actions = ("read", "update", "delete")
    role = new_role(
        stage, *(may("system_users", action=action, permissions=SEEN) for action in actions)
    )
    return member_of(stage, role)


@pytest.fixture(scope="module")
def hidden(stage: Stage) -> list[str]:
    """An administrator and somebody else whom the clerk does not see."""
    admin_role = stage.admin.get("/users/me").data["role"]
    people = [
        {"email": f"{uuid4()}@example.com", "role": role, "title": "hidden"}
        for role in (admin_role, None)
    ]
    return [row["id"] for row in stage.admin.post("/users", people).data]


def comparable(answer: Answer) -> tuple[int, bytes]:
    return answer.status, answer.content


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_users_who_are_hidden_are_changed_like_nobody(
    stage: Stage, clerk: Client, hidden: list[str], change: Json
) -> None:
    def changed(key: str) -> list[tuple[int, bytes]]:
        answers = (
            clerk.patch(f"/users/{key}", change),
            clerk.send("PATCH", f"/users/{key}", change, **{"If-Match": '"1-2"'}),
            clerk.patch("/users", {"keys": [key], "data": change}),
            clerk.patch("/users", {"query": {"filter": {"id": key}}, "data": change}),
            clerk.patch("/users", [{"id": key, **change}]),
        )
        return [comparable(answer) for answer in answers]

    missing = changed(str(uuid4()))
    assert [changed(key) for key in hidden] == [missing, missing]


def test_users_who_are_hidden_are_deleted_like_nobody(
    stage: Stage, clerk: Client, hidden: list[str]
) -> None:
    def deleted(key: str) -> list[tuple[int, bytes]]:
        answers = (
            clerk.delete(f"/users/{key}"),
            clerk.send("DELETE", f"/users/{key}", **{"If-Match": '"1-2"'}),
            clerk.delete("/users", [key]),
            clerk.delete("/users", {"keys": [key]}),
        )
        return [comparable(answer) for answer in answers]

    missing = deleted(str(uuid4()))
    assert {status for status, _ in missing} == {404}
    assert [deleted(key) for key in hidden] == [missing, missing]
    assert len(stage.admin.get("/users", **{"filter[title]": "hidden"}).data) == 2


def test_an_administrator_who_is_seen_is_still_out_of_reach(stage: Stage, clerk: Client) -> None:
    admin_role = stage.admin.get("/users/me").data["role"]
    key = stage.admin.post(
        "/users", {"email": "top@example.com", "role": admin_role, "title": "seen"}
    ).data["id"]
    for answer in (
        clerk.patch(f"/users/{key}", {"email": "x@example.com"}),
        clerk.delete(f"/users/{key}"),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer


def test_lists_of_a_hidden_item_are_not_looked_at(stage: Stage) -> None:
    """Whoever waits for a row of such a list knows that the item is there."""
    owners = table(stage.admin, field("title", "string"))
    parts = table(stage.admin, field("owner", "integer", is_nullable=False))
    relation = {"collection": parts.name, "field": "owner", "related_collection": owners.name}
    assert (
        stage.admin.post("/relations", {**relation, "meta": {"one_field": "parts"}}).status == 200
    )
    (item,) = owners.add({"title": "hidden", "parts": [{}, {}]})
    names = [may(owners.name, action=action, permissions=SEEN) for action in ("read", "update")]
    caller = member_of(
        stage,
        new_role(
            stage, *names, *(may(parts.name, action=one) for one in ("read", "create", "update"))
        ),
    )
    with psycopg.connect(stage.dsn) as connection:
        connection.execute(f"SELECT FROM {parts.name} FOR UPDATE".encode())
        lists: list[object] = [[], [{}], {"create": [{}]}]
        for value in lists:
            change = {"parts": value}
            answers = [
                comparable(caller.patch(f"{owners.path}/{key}", change))
                for key in (item["id"], 999)
            ]
            assert answers[0] == answers[1], change
            assert answers[0][0] == 404, change
