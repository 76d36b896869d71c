"""Idempotency-Key: a call that is sent again gets the first answer and does nothing."""

from __future__ import annotations

import hmac
import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from threading import Barrier
from typing import Any

import psycopg
import pytest

from cms.auth import accounts
from tests.client import ADMIN_EMAIL, Answer, Client
from tests.things import Stage, Table, field, table

AT_ONCE = 20

_keys = itertools.count()


THINGS = (field("title", "string", is_unique=True),)


@pytest.fixture
def key() -> str:
    return f"key {next(_keys)}"


def post(api: Client, path: str, body: Any, key: str) -> Answer:
    return api.send("POST", path, body, **{"Idempotency-Key": key})


def count(things: Table) -> int:
    count: int = things.read("aggregate[count]=*").data[0]["count"]
    return count


def test_a_call_that_comes_again_gets_the_first_answer(things: Table, key: str) -> None:
    first = post(things.api, things.path, {"title": "a"}, key)
    things.api.patch(f"{things.path}/{first.data['id']}", {"title": "changed since"})
    again = post(things.api, things.path, {"title": "a"}, key)
    assert (again.status, again.text) == (200, first.text)
    assert count(things) == 1


def test_without_a_key_and_with_another_everything_is_done_anew(things: Table, key: str) -> None:
    assert post(things.api, things.path, {}, key).status == 200
    assert post(things.api, things.path, {}, f"{key} other").status == 200
    assert things.api.post(things.path, {}).status == 200
    assert count(things) == 3


def test_the_same_key_with_another_request_is_refused(things: Table, key: str) -> None:
    assert post(things.api, things.path, {"title": "a"}, key).status == 200
    for path, body in (
        (things.path, {"title": "b"}),
        (f"{things.path}?fields=id", {"title": "a"}),
        ("/collections", {}),
    ):
        answer = post(things.api, path, body, key)
        assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"]), answer
    assert count(things) == 1


def test_what_is_kept_of_a_body_is_no_digest_that_guesses_can_be_tried_on(
    stage: Stage, things: Table, key: str
) -> None:
    """A body may hold a password, which its hash makes slow to guess."""
    assert post(things.api, things.path, {"title": "a"}, key).status == 200
    kept = stage.value("SELECT request FROM system_idempotency ORDER BY created DESC LIMIT 1")
    body = sha256(json.dumps({"title": "a"}).encode())
    content = b"\0".join((b"POST", things.path.encode(), b"", body.digest()))
    secret = b"only-for-tests-" * 3
    sealed = hmac.digest(hmac.digest(secret, b"idempotency", "sha256"), content, "sha256").hex()
    assert (kept, kept in (sha256(content).hexdigest(), body.hexdigest())) == (sealed, False)


def test_a_refused_call_is_not_kept(things: Table, key: str) -> None:
    things.add({"title": "a"})
    assert post(things.api, things.path, {"title": "a"}, key).codes == ["RECORD_NOT_UNIQUE"]
    things.api.delete(f"{things.path}/1")
    assert post(things.api, things.path, {"title": "a"}, key).status == 200


def test_each_caller_has_keys_of_its_own(stage: Stage, things: Table, key: str) -> None:
    accounts.create_user(
        stage.dsn, email=f"{key[4:]}@example.com", password="secret-of-bob", role=None
    )
    stage.execute(
        f"UPDATE system_users SET role = (SELECT role FROM system_users WHERE email = "
        f"'{ADMIN_EMAIL}')"
        f" WHERE email = '{key[4:]}@example.com'"
    )
    other = stage.anonymous.login(f"{key[4:]}@example.com", "secret-of-bob")
    assert (
        post(things.api, things.path, {}, key).data["id"]
        != post(other, things.path, {}, key).data["id"]
    )


def test_a_suspended_user_gets_no_answer_again(stage: Stage, things: Table, key: str) -> None:
    token = accounts.make_token(stage.dsn, email=ADMIN_EMAIL)
    api = stage.anonymous.bearing(token)
    assert post(api, things.path, {}, key).status == 200
    assert post(api, things.path, {}, key).status == 200
    stage.execute(f"UPDATE system_users SET token = NULL WHERE email = '{ADMIN_EMAIL}'")
    assert post(api, things.path, {}, key).status == 401


def test_after_a_day_the_key_is_free(stage: Stage, things: Table, key: str) -> None:
    for _ in range(2):
        assert post(things.api, things.path, {}, key).status == 200
    stage.execute("UPDATE system_idempotency SET created = created - interval '24 hours'")
    assert post(things.api, things.path, {}, key).data["id"] == 2
    assert post(things.api, things.path, {}, key).data["id"] == 2


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_has_1_to_255_characters(things: Table, key: str) -> None:
    answer = post(things.api, things.path, {}, key)
    assert (answer.status, answer.errors[0].get("header")) == (400, "Idempotency-Key")
    assert count(things) == 0


def test_the_longest_key_does(things: Table, key: str) -> None:
    longest = key.ljust(255, "k")
    assert (
        post(things.api, things.path, {}, longest).text
        == post(things.api, things.path, {}, longest).text
    )


def test_collections_fields_relations_and_comments_are_made_once(things: Table, key: str) -> None:
    api = things.api
    name = f"{things.name}_more"
    things.add({"title": "a"})
    calls: list[tuple[str, Any]] = [
        (
            "/collections",
            {"collection": name, "schema": {}, "fields": [{"field": "n", "type": "integer"}]},
        ),
        (f"/fields/{things.name}", {"field": "more", "type": "integer"}),
        ("/relations", {"collection": things.name, "field": "more", "related_collection": name}),
        ("/comments", {"collection": things.name, "item": 1, "comment": "Once."}),
    ]
    for number, (path, body) in enumerate(calls):
        first = post(api, path, body, f"{key} {number}")
        assert first.status == 200, first.text
        assert post(api, path, body, f"{key} {number}").body == first.body


@pytest.mark.release
def test_of_calls_that_come_at_once_one_is_done_and_all_get_its_answer(
    make_client: Callable[..., Client], admin_token: str, dsn: str
) -> None:
    apps = [make_client(database_pool_size=AT_ONCE // 2).bearing(admin_token) for _ in range(2)]
    things = table(apps[0], field("title", "string"))
    start = Barrier(AT_ONCE)

    def call(number: int) -> str:
        start.wait()
        answer = post(apps[number % 2], things.path, {"title": "a"}, "same key")
        assert answer.status == 200, answer.text
        return answer.text

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert len(set(threads.map(call, range(AT_ONCE)))) == 1
    assert count(things) == 1
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM system_idempotency").fetchone() == (1,)


def test_only_digests_of_key_and_request_are_stored(stage: Stage, things: Table, key: str) -> None:
    post(things.api, things.path, {"title": "Hush"}, key)
    kept = stage.value(
        "SELECT string_agg(concat_ws(' ', caller, key, request), ' ') FROM system_idempotency"
    )
    assert key not in kept
    assert "Hush" not in kept


def test_sorting_and_going_back_are_done_once(stage: Stage, admin: Client) -> None:
    things = table(admin, field("place", "integer"), field("name", "string"), sort_field="place")
    things.add(*({"name": name} for name in "abc"))
    move = {"item": 1, "to": 2}
    for _ in range(2):
        assert (
            admin.send(
                "POST", f"/utils/sort/{things.name}", move, **{"Idempotency-Key": "sort"}
            ).status
            == 204
        )
    assert things.column("id") == [2, 1, 3]
    admin.patch(f"{things.path}/1", {"name": "z"})
    first = admin.get(
        "/revisions", **{"filter[collection]": things.name, "filter[item]": 1, "sort": "id"}
    ).data[0]
    before = stage.value("SELECT count(*) FROM system_activity")
    for _ in range(2):
        answer = admin.send(
            "POST", f"/utils/revert/{first['id']}", None, **{"Idempotency-Key": "back"}
        )
        assert answer.data["name"] == "a", answer
    assert stage.value("SELECT count(*) FROM system_activity") == before + 1


def test_a_question_mark_in_a_name_is_no_query(stage: Stage) -> None:
    stage.execute(
        'CREATE TABLE "odd?name" (id serial PRIMARY KEY); CREATE TABLE odd (id serial PRIMARY KEY)'
    )
    headers = {"Idempotency-Key": "odd"}
    assert stage.admin.send("POST", "/items/odd%3Fname", {}, **headers).status == 200
    assert stage.admin.send("POST", "/items/odd?name", {}, **headers).codes == [
        "UNPROCESSABLE_CONTENT"
    ]
