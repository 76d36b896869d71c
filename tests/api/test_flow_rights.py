"""What callers reach through flows: nothing that they do not reach by themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.active_flows import Json, make_flow, runs, step
from tests.client import Client
from tests.members import may, member, new_role
from tests.things import Stage, Table, field

pytestmark = pytest.mark.usefixtures("flows_of_the_test")


@pytest.fixture
def guarded_pages(stage: Stage) -> Table:
    pages = stage.empty_table(
        field("title", "string"),
        field("hidden", "string"),
        field("pin", "string", special="conceal"),
    )
    rows: list[Json] = [
        {"title": "own", "hidden": "h-one", "pin": "p-one"},
        {"title": "other", "hidden": "h-two", "pin": "p-two"},
    ]
    pages.add(*rows)
    return pages


@pytest.fixture
def caller(stage: Stage, guarded_pages: Table) -> Client:
    """A user who sees one title, changes it, and sees nothing else."""
    own = {"title": {"_eq": "own"}}
    return member(
        stage,
        may("system_flows"),
        may(guarded_pages.name, "id", "title", permissions=own),
        may(
            guarded_pages.name,
            "title",
            action="update",
            permissions=own,
            validation={"title": {"_nnull": True}},
        ),
    )


def item_flow(admin: Client, kind: str, *asked: str, **permissions: str) -> str:
    """Make a flow that does what its caller asks, and answers also how it was rejected."""
    options = {"collection": "{{$trigger.body.collection}}", **permissions}
    options |= {name: f"{{{{$trigger.body.{name}}}}}" for name in asked}
    steps = [
        step("act", kind, options, reject="tell"),
        step("tell", "transform", {"json": "{{act}}"}),
    ]
    return make_flow(admin, "webhook", {"method": "POST", "return": "{{act}}"}, steps)


FORBIDDEN_READS: list[Json] = [
    {"key": 2},
    {"query": {"fields": ["hidden"]}},
    {"query": {"fields": ["*", "pin"]}},
    {"query": {"filter": {"hidden": {"_eq": "h-one"}}}},
    {"query": {"filter": {"pin": {"_starts_with": "p"}}}},
    {"query": {"sort": ["hidden"]}},
    {"query": {"alias": {"x": "hidden"}, "fields": ["x"]}},
    {"query": {"aggregate": {"max": "hidden"}}},
    {"query": {"groupBy": ["hidden"], "aggregate": {"count": "*"}}},
    {"collection": "system_users"},
    {"collection": "system_permissions"},
    {"collection": "system_settings", "key": 1},
]


@pytest.mark.quick(4)
@pytest.mark.parametrize("body", FORBIDDEN_READS, ids=json.dumps)
def test_a_flow_reads_what_its_caller_may_read(
    admin: Client, caller: Client, guarded_pages: Table, body: Json
) -> None:
    flow = item_flow(admin, "item-read", *(body.keys() - {"collection"}))
    answer = caller.post(f"/flows/trigger/{flow}", {"collection": guarded_pages.name, **body})
    assert not {"h-one", "h-two", "p-one", "p-two"} & set(texts_of(answer.data))
    assert set(answer.data) == {"errors"}
    # The problems of the same call without a flow, which name nothing that is hidden.
    if set(body) == {"query"}:
        direct = caller.send("SEARCH", f"/items/{guarded_pages.name}", body)
        expected = [{"code": code} for code in direct.codes]
        assert [error["extensions"] for error in answer.data["errors"]] == expected


def texts_of(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_of(inner)


def test_a_list_of_keys_shows_those_that_the_caller_sees(
    admin: Client, caller: Client, guarded_pages: Table
) -> None:
    flow = item_flow(admin, "item-read", "key")
    body = {"collection": guarded_pages.name, "key": [1, 2]}
    assert caller.post(f"/flows/trigger/{flow}", body).data == [{"id": 1, "title": "own"}]
    everything: Json = {"query": {"filter": {"_or": [{"id": {"_gt": 0}}, {}]}, "limit": -1}}
    flow = item_flow(admin, "item-read", "query")
    body = {"collection": guarded_pages.name, **everything}
    assert caller.post(f"/flows/trigger/{flow}", body).data == [{"id": 1, "title": "own"}]


FORBIDDEN_WRITES: list[tuple[str, Json]] = [
    ("item-create", {"payload": {"title": "new"}}),
    ("item-update", {"key": 2, "payload": {"title": "mine"}}),
    ("item-update", {"key": [1, 2], "payload": {"title": "mine"}}),
    ("item-update", {"key": 1, "payload": {"hidden": "x"}}),
    ("item-update", {"key": 1, "payload": {"title": None}}),
    ("item-update", {"query": {"filter": {"hidden": {"_eq": "h-one"}}}, "payload": {"title": "x"}}),
    ("item-delete", {"key": 1}),
    ("item-delete", {"query": {"filter": {"id": {"_gt": 0}}}}),
    ("item-create", {"collection": "system_permissions", "payload": {"collection": "*"}}),
    ("item-create", {"collection": "system_users", "payload": {"email": "a@example.com"}}),
    ("item-update", {"collection": "system_flows", "query": {}, "payload": {"name": "x"}}),
    ("item-update", {"collection": "system_settings", "key": 1, "payload": {"project_name": "x"}}),
]


@pytest.mark.quick(4)
@pytest.mark.parametrize(("kind", "body"), FORBIDDEN_WRITES, ids=str)
def test_a_flow_writes_what_its_caller_may_write(
    admin: Client, caller: Client, guarded_pages: Table, kind: str, body: Json
) -> None:
    flow = item_flow(admin, kind, *(body.keys() - {"collection"}))
    before = admin.get(f"/items/{guarded_pages.name}").data
    answer = caller.post(f"/flows/trigger/{flow}", {"collection": guarded_pages.name, **body})
    assert set(answer.data) == {"errors"}, answer.text
    for secret in ("h-one", "h-two", "p-one"):
        assert secret not in answer.text
    assert admin.get(f"/items/{guarded_pages.name}").data == before


def test_a_caller_does_through_a_flow_what_it_may(
    admin: Client, caller: Client, guarded_pages: Table
) -> None:
    flow = item_flow(admin, "item-update", "key", "payload")
    body = {"collection": guarded_pages.name, "key": 1, "payload": {"title": "own"}}
    assert caller.post(f"/flows/trigger/{flow}", body).data == [1]


def test_a_body_does_not_choose_whose_rights_count(
    stage: Stage, admin: Client, caller: Client, guarded_pages: Table
) -> None:
    """What a caller sends beside the options stays beside them."""
    flow = item_flow(admin, "item-read", "query")
    for claim in ("$full", new_role(stage, may(guarded_pages.name))):
        body = {
            "collection": guarded_pages.name,
            "permissions": claim,
            "$accountability": {"role": claim, "user": None},
            "query": {"fields": ["hidden"]},
        }
        assert set(caller.post(f"/flows/trigger/{flow}", body).data) == {"errors"}


def test_the_rights_of_public_are_no_more_than_those_of_nobody(
    admin: Client, caller: Client, guarded_pages: Table
) -> None:
    flow = item_flow(admin, "item-read", permissions="$public")
    answer = caller.post(f"/flows/trigger/{flow}", {"collection": guarded_pages.name})
    assert set(answer.data) == {"errors"}


def test_all_rights_do_not_show_what_nobody_sees(
    admin: Client, caller: Client, guarded_pages: Table
) -> None:
    flow = item_flow(admin, "item-read", "query", permissions="$full")
    body = {"collection": guarded_pages.name, "query": {"fields": ["title", "pin"], "sort": ["id"]}}
    answer = caller.post(f"/flows/trigger/{flow}", body)
    assert [item["title"] for item in answer.data] == ["own", "other"]
    assert "p-one" not in answer.text
    body = {"collection": "system_users", "query": {"fields": ["password", "token"]}}
    answer = caller.post(f"/flows/trigger/{flow}", body)
    assert "argon2" not in answer.text
    assert "**********" in answer.text or "null" in answer.text


def test_the_log_does_not_show_what_is_written_to_concealed_fields(
    admin: Client, guarded_pages: Table
) -> None:
    scope = {"type": "filter", "scope": ["items.create"], "collections": [guarded_pages.name]}
    watcher = make_flow(admin, "event", scope, [step("see", "log", {"message": "{{$trigger}}"})])
    flow = item_flow(admin, "item-create", "payload")
    payload = {"title": "new", "pin": "p-three"}
    body = {"collection": guarded_pages.name, "payload": payload, "note": "it is p-three"}
    assert admin.post(f"/flows/trigger/{flow}", body).data == [3]
    for logged in (flow, watcher):
        text = json.dumps(runs(admin, logged))
        assert "p-three" not in text
        assert "new" in text
