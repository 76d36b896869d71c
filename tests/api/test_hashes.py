"""/utils/hash and /utils/random: for everybody who is signed in, with bounded work."""

from __future__ import annotations

import re

import pytest

from tests.active_flows import make_flow, step
from tests.client import Client
from tests.members import member_of, new_role
from tests.things import Stage

GENERATE = "/utils/hash/generate"
VERIFY = "/utils/hash/verify"
RANDOM = "/utils/random/string"


@pytest.fixture
def someone(stage: Stage) -> Client:
    """A user without any permission."""
    return member_of(stage, new_role(stage))


def test_a_hash_is_verified_by_its_text_alone(someone: Client) -> None:
    made = someone.post(GENERATE, {"string": "pässword"}).data
    assert made.startswith("$argon2id$")
    assert someone.post(GENERATE, {"string": "pässword"}).data != made
    assert someone.post(VERIFY, {"string": "pässword", "hash": made}).data is True
    assert someone.post(VERIFY, {"string": "password", "hash": made}).data is False


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        (GENERATE, {}, ["string"]),
        (GENERATE, {"string": ""}, ["string"]),
        (GENERATE, {"string": 5}, ["string"]),
        (GENERATE, {"string": "a" * 1_001}, ["string"]),
        (VERIFY, {}, ["string", "hash"]),
        (VERIFY, {"string": "a", "hash": ["$argon2id$"]}, ["hash"]),
    ],
)
def test_a_body_of_another_shape_is_refused(
    someone: Client, path: str, body: object, fields: list[str]
) -> None:
    answer = someone.post(path, body)
    assert answer.status == 400
    assert [(error["code"], error["field"]) for error in answer.errors] == [
        ("INVALID_PAYLOAD", field) for field in fields
    ]


_REST = "$YWFhYWFhYWE$YWFhYWFhYWE"


@pytest.mark.parametrize(
    "stored",
    [
        "plain text",
        "$2b$12$abcdefghijklmnopqrstuv",
        f"$argon2id$v=19$m=4194304,t=3,p=4{_REST}",
        f"$argon2id$v=19$m=65536,t=4000000000,p=4{_REST}",
        f"$argon2id$v=19$m=65536,t=3,p=8192{_REST}",
        f"$argon2id$v=19$m=8,t=1,p=1{_REST}é",
        f"$argon2id$v=19$m=8,t=1,p=1${'Y' * 1_000}$YWFhYWFhYWE",
    ],
)
def test_a_hash_that_takes_more_work_than_our_own_is_refused(someone: Client, stored: str) -> None:
    answer = someone.post(VERIFY, {"string": "a", "hash": stored})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])


@pytest.mark.parametrize(
    "stored",
    [
        f"$argon2id$v=19$m=0,t=0,p=0{_REST}",
        f"$argon2id$v=19$m=-8,t=1,p=1{_REST}",
        "$argon2i$m=8,t=1,p=1$$",
    ],
)
def test_a_hash_that_nothing_can_have_is_of_no_text(someone: Client, stored: str) -> None:
    assert someone.post(VERIFY, {"string": "a", "hash": stored}).data is False


@pytest.mark.parametrize(("query", "length"), [("", 32), ("?length=1", 1), ("?length=500", 500)])
def test_a_random_text_has_the_length_that_is_asked_for(
    someone: Client, query: str, length: int
) -> None:
    answer = someone.get(RANDOM + query)
    assert re.fullmatch(rf"[A-Za-z0-9_-]{{{length}}}", answer.data)
    assert answer.headers["cache-control"] == "no-store"
    assert length == 1 or someone.get(RANDOM + query).data != answer.data


@pytest.mark.parametrize("length", ["0", "501", "-1", "1.5", "x", "٣", "9" * 5_000])
def test_another_length_is_refused(someone: Client, length: str) -> None:
    answer = someone.get(RANDOM, length=length)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


def test_nobody_else_has_anything_hashed(stage: Stage, anonymous: Client) -> None:
    role = new_role(stage)
    suspended = member_of(stage, role, status="suspended")
    for client, code in ((anonymous, "INVALID_CREDENTIALS"), (suspended, "INVALID_TOKEN")):
        assert client.post(GENERATE, {"string": "a"}).codes == [code]
        assert client.post(VERIFY, {"string": "a", "hash": "a"}).codes == [code]
        assert client.get(RANDOM).codes == [code]


@pytest.mark.usefixtures("flows_of_the_test")
def test_values_that_are_hashed_count_once_where_related_items_pass_flows(
    stage: Stage, admin: Client
) -> None:
    options = {"type": "filter", "scope": ["users.create"]}
    make_flow(admin, "event", options, [step("all", "transform", {"json": "{{$trigger.payload}}"})])
    users = [{"email": f"{number}@there.example", "password": "a-word"} for number in range(60)]
    answer = admin.post("/roles", {"name": "Many", "users": users})
    assert answer.status == 200, answer.text
    assert stage.anonymous.login("59@there.example", "a-word")
    users = [{"email": f"m{number}@there.example", "password": "b"} for number in range(101)]
    assert admin.post("/roles", {"name": "More", "users": users}).codes == ["INVALID_PAYLOAD"]
