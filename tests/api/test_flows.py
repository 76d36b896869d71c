"""/flows and /operations: written as items are, and refused where they could not run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage

LOG = {"type": "log", "options": {"message": "Hello"}}


def new_flow(admin: Client, **values: object) -> dict[str, object]:
    flow: dict[str, object] = admin.post(
        "/flows", {"name": "A flow", "trigger": "webhook", **values}
    ).data
    return flow


def new_operation(admin: Client, flow: dict[str, object], key: str, **values: object) -> str:
    operation = admin.post("/operations", {**LOG, "flow": flow["id"], "key": key, **values}).data
    return str(operation["id"])


def reasons(answer: Answer) -> list[tuple[str, str]]:
    """Return collection and path of each problem of a refused write."""
    assert answer.status == 422, answer.text
    return [(error["collection"], ".".join(map(str, error["path"]))) for error in answer.errors]


def test_a_flow_is_made_read_with_its_operations_changed_and_deleted(admin: Client) -> None:
    flow = new_flow(admin, icon="bolt", color="#ff8800", options={"method": "POST"})
    assert (flow["status"], flow["accountability"]) == ("active", "all")
    second = new_operation(admin, flow, "second")
    first = new_operation(admin, flow, "first", resolve=second)
    changed = admin.patch(f"/flows/{flow['id']}", {"operation": first, "status": "inactive"}).data
    assert changed["operation"] == first
    read = admin.get(f"/flows/{flow['id']}", fields="*,operations.key,operations.resolve").data
    assert sorted(map(str, read["operations"])) == [
        str({"key": "first", "resolve": second}),
        str({"key": "second", "resolve": None}),
    ]
    assert admin.delete(f"/flows/{flow['id']}").status == 204
    assert admin.get(f"/operations/{first}").status == 404


def test_a_flow_is_written_whole_with_operations_that_lead_to_each_other(admin: Client) -> None:
    first = str(uuid4())
    second = str(uuid4())
    flow = new_flow(
        admin,
        operation=first,
        operations=[
            {**LOG, "id": first, "key": "first", "resolve": second},
            {**LOG, "id": second, "key": "second"},
        ],
    )
    read = admin.get(f"/flows/{flow['id']}", fields="operation,operations.id").data
    assert read["operation"] == first
    assert {entry["id"] for entry in read["operations"]} == {first, second}


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"trigger": "event", "options": {"type": "action"}}, "options.scope"),
        ({"trigger": "schedule", "options": {"cron": "0 0 30 2 *"}}, "options.cron"),
        ({"trigger": "webhook", "options": {"method": "HEAD"}}, "options.method"),
        ({"trigger": "sometimes"}, "trigger"),
        ({"options": []}, "options"),
    ],
)
def test_a_trigger_that_never_fires_is_refused(
    admin: Client, values: dict[str, object], path: str
) -> None:
    answer = admin.post("/flows", {"name": "Wrong", "trigger": "manual", **values})
    assert reasons(answer) == [("system_flows", path)]
    assert admin.get("/flows", **{"filter[name][_eq]": "Wrong"}).data == []


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"type": "dance"}, "type"),
        ({"type": "sleep", "options": {"milliseconds": "soon"}}, "options.milliseconds"),
        ({"options": {"message": "{{1 + 1}}"}}, "options.message"),
        ({"options": {"massage": "Hello"}}, "options.message"),
        ({"key": "$last"}, "key"),
    ],
)
def test_an_operation_that_cannot_run_is_refused(
    admin: Client, values: dict[str, object], path: str
) -> None:
    flow = new_flow(admin)
    answer = admin.post("/operations", {**LOG, "flow": flow["id"], "key": "wrong", **values})
    assert reasons(answer) == [("system_operations", path)]


def test_operations_that_lead_back_are_refused_however_they_are_written(admin: Client) -> None:
    flow = new_flow(admin)
    second = new_operation(admin, flow, "second")
    first = new_operation(admin, flow, "first", resolve=second)
    back = admin.patch(f"/operations/{second}", {"reject": first})
    # The older operation's way counts as the first one.
    assert reasons(back) == [("system_operations", "resolve")]
    assert back.errors[0]["key"] == first
    itself = admin.patch("/operations", [{"id": second, "resolve": second}])
    assert reasons(itself) == [("system_operations", "resolve")]
    operations = {"update": [{"id": second, "resolve": first}]}
    nested = admin.patch(f"/flows/{flow['id']}", {"operations": operations})
    assert reasons(nested) == [("system_operations", "resolve")]
    assert nested.errors[0]["key"] == first
    assert admin.get(f"/operations/{second}").data["resolve"] is None


def test_an_unknown_operation_is_refused_wherever_it_is_named(admin: Client) -> None:
    flow = new_flow(admin)
    key = new_operation(admin, flow, "one")
    nowhere = str(uuid4())
    named = {**LOG, "key": "two", "reject": nowhere}
    answers = {
        "operation": admin.patch(f"/flows/{flow['id']}", {"operation": nowhere}),
        "resolve": admin.patch(f"/operations/{key}", {"resolve": nowhere}),
        "reject": admin.post("/operations", {**named, "flow": flow["id"]}),
        "operations.1.reject": admin.post(
            "/flows", {"name": "A", "trigger": "manual", "operations": [{**LOG, "key": "a"}, named]}
        ),
    }
    assert [path for answer in answers.values() for _, path in reasons(answer)] == list(answers)
    for answer in answers.values():
        assert answer.codes == ["FAILED_VALIDATION"]
        assert answer.errors[0]["reason"] == "the flow has no such operation"
    # A flow is named in no way of its own.
    unknown = admin.post("/operations", {**LOG, "key": "a", "flow": nowhere})
    assert unknown.codes == ["INVALID_FOREIGN_KEY"]


def test_ways_may_join_in_an_operation_which_stays_in_its_flow(admin: Client) -> None:
    flow = new_flow(admin, options={"method": "POST", "return": "{{check}} {{right}} {{end}}"})
    other = new_flow(admin)
    last = new_operation(admin, flow, "end", type="transform", options={"json": "end"})
    left = new_operation(admin, flow, "left", resolve=last)
    right = {"type": "transform", "options": {"json": "right"}, "resolve": last}
    never = {"type": "condition", "options": {"filter": {"$trigger": {"x": {"_eq": 1}}}}}
    ends = {"resolve": left, "reject": new_operation(admin, flow, "right", **right)}
    first = new_operation(admin, flow, "check", **never, **ends)
    assert admin.patch(f"/flows/{flow['id']}", {"operation": first}).status == 200
    assert admin.post(f"/flows/trigger/{flow['id']}", {"x": 1}).data == "  end"
    assert admin.post(f"/flows/trigger/{flow['id']}", {"x": 2}).data.endswith("right end")
    back = admin.patch(f"/operations/{last}", {"resolve": first})
    assert reasons(back) == [("system_operations", "resolve")]
    body = {**LOG, "flow": other["id"], "key": "third", "resolve": last}
    assert reasons(admin.post("/operations", body)) == [("system_operations", "resolve")]
    assert reasons(admin.patch(f"/flows/{other['id']}", {"operation": last})) == [
        ("system_flows", "operation")
    ]


def test_a_changed_trigger_is_checked_against_the_options_that_are_stored(admin: Client) -> None:
    flow = new_flow(admin, options={"method": "GET"})
    answer = admin.patch(f"/flows/{flow['id']}", {"trigger": "schedule"})
    assert reasons(answer) == [("system_flows", "options.cron")]


def test_keys_are_unique_within_a_flow(admin: Client) -> None:
    flow = new_flow(admin)
    other = new_flow(admin)
    new_operation(admin, flow, "same")
    new_operation(admin, other, "same")
    answer = admin.post("/operations", {**LOG, "flow": flow["id"], "key": "same"})
    assert answer.codes == ["RECORD_NOT_UNIQUE"]


def test_everything_wrong_with_a_flow_is_reported_at_once(admin: Client) -> None:
    operations = [
        {"key": "a", "type": "mail", "options": {"to": "nobody", "subject": ""}},
        {"key": "b", "type": "request", "options": {}},
    ]
    answer = admin.post("/flows", {"name": "Wrong", "trigger": "webhook", "operations": operations})
    assert sorted(path for _, path in reasons(answer)) == [
        "operations.0.options.body",
        "operations.0.options.subject",
        "operations.0.options.to",
        "operations.1.options.url",
    ]
    # The operations are not stored, so that their keys would tell nothing.
    assert not any("key" in error for error in answer.errors)


def test_what_is_wrong_with_several_rows_is_reported_with_their_places(admin: Client) -> None:
    wrong = {"key": "wrong", "type": "request", "options": {}}
    # Operations of one moment are ordered by their ids.
    cycle = sorted([str(uuid4()), str(uuid4())])
    flows = [
        {"name": "Fine", "trigger": "manual"},
        {
            "name": "Circle",
            "trigger": "webhook",
            "options": {"method": "HEAD"},
            "operations": [
                {**LOG, "id": cycle[0], "key": "one", "resolve": cycle[1]},
                {**LOG, "id": cycle[1], "key": "two", "resolve": cycle[0]},
                wrong,
            ],
        },
    ]
    answer = admin.post("/flows", flows)
    assert sorted(reasons(answer)) == [
        ("system_flows", "options.method"),
        ("system_operations", "operations.1.resolve"),
        ("system_operations", "operations.2.options.url"),
    ]
    assert {error["index"] for error in answer.errors} == {1}
    flow = new_flow(admin)
    fine = {**LOG, "flow": flow["id"], "key": "fine"}
    several = admin.post("/operations", [fine, {**wrong, "flow": flow["id"]}])
    assert reasons(several) == [("system_operations", "options.url")]
    assert several.errors[0]["index"] == 1
    key = new_operation(admin, flow, "kept")
    changed = admin.patch(f"/flows/{flow['id']}", {"operations": [{"id": key, "type": "request"}]})
    assert [error["key"] for error in changed.errors] == [key]
    assert reasons(changed)[0] == ("system_operations", "operations.0.options.url")


def test_flows_are_written_by_administrators_and_read_by_those_who_may(
    stage: Stage, admin: Client
) -> None:
    flow = new_flow(admin)
    operation = new_operation(admin, flow, "one")
    actions = ("create", "read", "update", "delete")
    tables = ("system_flows", "system_operations")
    writer = member(stage, *(may(table, action=action) for table in tables for action in actions))
    # An operation may act with all rights, and an event may be caused by an administrator.
    assert writer.post("/flows", {"name": "Mine", "trigger": "manual"}).status == 403
    assert writer.post("/operations", {**LOG, "flow": flow["id"], "key": "two"}).status == 403
    assert writer.patch(f"/flows/{flow['id']}", {"name": "Mine"}).status == 403
    assert writer.patch(f"/operations/{operation}", {"key": "two"}).status == 403
    assert writer.delete(f"/operations/{operation}").status == 403
    assert writer.delete(f"/flows/{flow['id']}").status == 403
    assert writer.get(f"/operations/{operation}").status == 200
    reader = member(stage, may("system_flows", "id", "name"))
    assert reader.post("/flows", {"name": "Not mine", "trigger": "manual"}).status == 403
    assert set(reader.get("/flows").data[0]) == {"id", "name"}


def test_an_operation_that_others_lead_to_stays_in_its_flow(admin: Client) -> None:
    flow = new_flow(admin)
    other = new_flow(admin)
    last = new_operation(admin, flow, "last")
    first = new_operation(admin, flow, "first", resolve=last)
    moved = admin.patch(f"/operations/{last}", {"flow": other["id"]})
    assert reasons(moved) == [("system_operations", "resolve")]
    assert moved.errors[0]["key"] == first
    nested = admin.patch(f"/flows/{other['id']}", {"operations": {"update": [{"id": last}]}})
    # The way that is wrong now stands in the other operation, which the body does not name.
    assert reasons(nested) == [("system_operations", "resolve")]
    assert nested.errors[0]["key"] == first
    body = {"keys": [first, last], "data": {"flow": other["id"]}}
    assert admin.patch("/operations", body).status == 200
    assert admin.patch(f"/flows/{other['id']}", {"operation": first}).status == 200
    began = admin.patch(f"/operations/{first}", {"flow": flow["id"], "resolve": None})
    assert reasons(began) == [("system_flows", "operation")]
    assert began.errors[0]["key"] == other["id"]


@pytest.mark.parametrize("path", ["/flows", "/operations"])
def test_a_flow_whose_first_operation_is_deleted_begins_with_the_next_one(
    admin: Client, path: str
) -> None:
    flow = new_flow(admin, options={"method": "POST", "return": "$last"})
    echo = {"type": "transform", "options": {"json": "second"}}
    second = new_operation(admin, flow, "second", **echo)
    first = new_operation(admin, flow, "first", resolve=second)
    assert admin.patch(f"/flows/{flow['id']}", {"operation": first}).status == 200
    if path == "/flows":
        deletion = {"operations": {"delete": [first]}}
        assert admin.patch(f"/flows/{flow['id']}", deletion).status == 200
    else:
        assert admin.delete(f"/operations/{first}").status == 204
    assert admin.get(f"/flows/{flow['id']}").data["operation"] is None
    assert admin.post(f"/flows/trigger/{flow['id']}", {}).data == "second"


def test_an_inactive_flow_is_checked_and_reported_where_its_nested_parts_are_wrong(
    admin: Client,
) -> None:
    flow = new_flow(admin, status="inactive")
    kept = new_operation(admin, flow, "kept")
    gone = new_operation(admin, flow, "gone")
    operations = {
        "create": [{"key": "new", "type": "log", "options": {"message": "Hello"}}],
        "update": [{"id": kept, "options": {"message": "Changed"}}],
        "delete": [gone],
    }
    path = f"/flows/{flow['id']}"
    assert admin.patch(path, {"operations": operations}).status == 200
    keys = {entry["key"] for entry in admin.get(path, fields="operations.key").data["operations"]}
    assert keys == {"kept", "new"}
    for wrong, field in (
        ({"create": [{"key": "x", "type": "dance"}]}, ["operations", "create", 0, "type"]),
        ({"create": [{"key": "$x", "type": "log"}]}, ["operations", "create", 0, "key"]),
        ({"update": [{"id": kept, "options": []}]}, ["operations", "update", 0, "options"]),
    ):
        answer = admin.patch(path, {"operations": wrong})
        assert (answer.status, answer.errors[0]["path"]) == (422, field), answer.text
    incomplete = {"operations": {"update": [{"id": kept, "options": {}}]}}
    missing = admin.patch(path, {**incomplete, "status": "active"})
    assert reasons(missing) == [("system_operations", "operations.update.0.options.message")]
    twice = {"create": [{**LOG, "key": "kept"}]}
    refused = admin.patch(path, {"operations": twice})
    assert refused.codes == ["RECORD_NOT_UNIQUE"]


def test_changes_at_the_same_time_make_no_cycle(admin: Client) -> None:
    for _ in range(5):
        flow = new_flow(admin)
        pair = [new_operation(admin, flow, key) for key in ("one", "two")]
        with ThreadPoolExecutor(2) as pool:
            answers = pool.map(
                lambda ends: admin.patch(f"/operations/{ends[0]}", {"resolve": ends[1]}).status,
                [pair, pair[::-1]],
            )
        assert sorted(answers) == [200, 422]


def test_the_options_of_operations_enter_no_history(admin: Client) -> None:
    """They may hold secrets in any form: headers, keys in addresses, texts in scripts."""
    flow = new_flow(admin, name="Private")
    headers = {"Authorization": "Bearer s3cret-1"}
    options = {"url": "https://example.com/?key=s3cret-2", "headers": headers}
    key = new_operation(admin, flow, "ask", type="request", options=options)
    changed = {"options": {**options, "body": "s3cret-3"}, "name": "Asks"}
    assert admin.patch(f"/operations/{key}", changed).data["options"] == changed["options"]
    assert admin.patch(f"/operations/{key}", {"options": options}).status == 200
    of_operations = {"filter": '{"collection": {"_eq": "system_operations"}}', "limit": -1}
    revisions = admin.get("/revisions", **of_operations)
    own = [each for each in revisions.data if each["item"] == key]
    assert [each["delta"].get("name") for each in own][1:] == ["Asks"]
    for answer in (revisions, admin.get("/activity", **of_operations, fields="*,revisions.*")):
        assert "s3cret" not in answer.text
    reverted = admin.post(f"/utils/revert/{own[0]['id']}")
    assert reverted.status in (200, 204)
    assert admin.get(f"/operations/{key}").data["options"] == options
