"""A call that runs a flow is done once with an Idempotency-Key, whatever the flow writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cms.config import Config
from tests.active_flows import Json, make_flow, runs, step, work
from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, Table, field, table


@pytest.fixture
def pages(admin: Client) -> Table:
    return table(admin, field("title", "string"))


def creating(pages: Table, *, seconds: float = 0) -> list[Json]:
    create = {"collection": pages.name, "permissions": "$full"}
    title = "{{$trigger.body.title}}"
    return [
        step("one", "item-create", {**create, "payload": {"title": title}}, resolve="wait"),
        step("wait", "sleep", {"milliseconds": int(seconds * 1000)}, resolve="two"),
        step("two", "item-create", {**create, "payload": {"title": title}}),
    ]


def call(client: Client, flow: str, body: object, key: str, *, method: str = "POST") -> Answer:
    return client.send(method, f"/flows/trigger/{flow}", body, **{"Idempotency-Key": key})


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_flow_whose_caller_waits_runs_once_for_a_key(
    admin: Client, pages: Table, method: str
) -> None:
    flow = make_flow(admin, "webhook", {"method": method}, creating(pages))
    first = call(admin, flow, {"title": "a"}, f"k {method}", method=method)
    again = call(admin, flow, {"title": "a"}, f"k {method}", method=method)
    assert (first.status, first.content) == (200, again.content)
    other = call(admin, flow, {"title": "b"}, f"k {method}", method=method)
    assert (other.status, other.codes) == (422, ["UNPROCESSABLE_CONTENT"])
    assert [item["title"] for item in admin.get(pages.path).data] == ["a", "a"]
    assert len(runs(admin, flow)) == 1
    assert call(admin, flow, {"title": "b"}, f"l {method}", method=method).status == 200
    assert len(admin.get(pages.path).data) == 4


def test_calls_at_the_same_time_wait_for_the_answer_of_the_first(
    admin: Client, pages: Table
) -> None:
    flow = make_flow(admin, "webhook", {"method": "POST"}, creating(pages, seconds=0.1))
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: call(admin, flow, {"title": "a"}, "same"), range(3)))
    assert {(answer.status, answer.content) for answer in answers} == {(200, answers[0].content)}
    assert len(admin.get(pages.path).data) == 2


def test_a_flow_that_deletes_its_items_answers_again(admin: Client, pages: Table) -> None:
    delete = {"collection": pages.name, "key": "{{$trigger.body.keys}}"}
    flow = make_flow(admin, "manual", {}, [step("delete", "item-delete", delete)])
    (page,) = pages.add({"title": "a"})
    body = {"collection": pages.name, "keys": [page["id"]]}
    assert [call(admin, flow, body, "gone").data for _ in range(2)] == [[page["id"]]] * 2
    assert call(admin, flow, body, "new").status == 404


def test_keys_are_of_one_caller_and_rejected_flows_run_again(
    stage: Stage, admin: Client, pages: Table
) -> None:
    flow = make_flow(admin, "webhook", {"method": "POST"}, creating(pages))
    caller = member(stage, may("system_flows"))
    assert call(admin, flow, {"title": "a"}, "shared").status == 200
    assert call(caller, flow, {"title": "b"}, "shared").status == 200
    assert len(admin.get(pages.path).data) == 4
    stop = step("stop", "throw-error", {"code": "STOP", "status": 409})
    stopped = make_flow(admin, "webhook", {"method": "POST"}, [stop])
    for _ in range(2):
        assert call(admin, stopped, {}, "stopped").codes == ["STOP"]
    assert len(runs(admin, stopped)) == 2


def test_an_asynchronous_flow_is_queued_once(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    flow = make_flow(admin, "webhook", {"method": "POST", "async": True}, creating(pages))
    for _ in range(2):
        assert call(admin, flow, {"title": "a"}, "async").status == 204
    work(stage, settings)
    assert len(admin.get(pages.path).data) == 2


@pytest.mark.release
def test_the_claim_of_a_process_that_was_killed_ends(
    stage: Stage, admin: Client, pages: Table
) -> None:
    flow = make_flow(admin, "webhook", {"method": "POST"}, creating(pages))
    assert call(admin, flow, {"title": "a"}, "killed").status == 200
    newest = "created = (SELECT max(created) FROM system_idempotency)"
    claimed = "UPDATE system_idempotency SET answer = NULL, is_record = true, created = {} WHERE {}"
    long_ago = "now() - interval '5 minutes'"
    stage.execute(claimed.format(long_ago, newest))
    assert call(admin, flow, {"title": "b"}, "killed").status == 422
    assert call(admin, flow, {"title": "a"}, "killed").status == 200
    assert len(admin.get(pages.path).data) == 4
    with ThreadPoolExecutor(1) as pool:
        stage.execute(claimed.format("now()", newest))
        waiting = pool.submit(call, admin, flow, {"title": "a"}, "killed")
        stage.execute(claimed.format(long_ago, newest))
        assert waiting.result().status == 200
    assert len(admin.get(pages.path).data) == 6
