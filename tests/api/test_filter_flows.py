"""Filter flows see whatever is written, by whichever way it is written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from tests.active_flows import make_flow, step
from tests.client import Client
from tests.file_imports import post_file
from tests.members import may, member
from tests.things import Stage, Table, field, table

pytestmark = pytest.mark.usefixtures("flows_of_the_test")

Json = dict[str, Any]

RENAME = step(
    "name",
    "exec",
    {
        "code": """
module.exports = ({ $trigger: { payload, keys } }) =>
  ({ ...payload, text: `${payload.text ?? "-"}!${keys ?? ""}` });
"""
    },
)
REFUSE = step("stop", "throw-error", {"code": "KEPT", "status": 409})


@pytest.fixture
def parts(stage: Stage) -> Table:
    return stage.empty_table(
        field("page", "integer"), field("text", "string"), field("place", "integer")
    )


@pytest.fixture
def pages_with_parts(stage: Stage, admin: Client, parts: Table) -> Table:
    pages = stage.empty_table(field("title", "string"), field("cover", "integer"))
    list_of = {"collection": parts.name, "field": "page", "related_collection": pages.name}
    meta = {"one_field": "parts", "sort_field": "place"}
    assert admin.post("/relations", {**list_of, "meta": meta}).status == 200
    cover = {"collection": pages.name, "field": "cover", "related_collection": parts.name}
    assert admin.post("/relations", cover).status == 200
    return pages


def filter_flow(admin: Client, table: Table, steps: Sequence[Json], *verbs: str) -> None:
    scope = [f"items.{verb}" for verb in verbs]
    options = {"type": "filter", "scope": scope, "collections": [table.name]}
    make_flow(admin, "event", options, steps)


def texts(table: Table) -> list[Any]:
    return [item["text"] for item in table.api.get(table.path, sort="id").data]


def test_related_items_are_filtered_however_they_are_nested(
    admin: Client, pages_with_parts: Table, parts: Table
) -> None:
    filter_flow(admin, parts, [RENAME], "create", "update")
    body = {"title": "a", "parts": [{"text": "b"}, {"text": "c"}], "cover": {"text": "d"}}
    query = "?fields=id,cover,parts.id,parts.place"
    page = admin.post(f"{pages_with_parts.path}{query}", body).data
    assert sorted(texts(parts)) == ["b!", "c!", "d!"]
    first, second = page["parts"]
    assert [first["place"], second["place"]] == [1, 2]
    changes = {
        "create": [{"text": "e"}],
        "update": [{"id": first["id"], "text": "f"}],
        "delete": [second["id"]],
    }
    path = f"{pages_with_parts.path}/{page['id']}"
    assert admin.patch(path, {"parts": changes}).status == 200
    read = {item["id"]: item for item in admin.get(parts.path).data}
    assert read[first["id"]]["text"] == f"f!{first['id']}"
    # It has left the list, which is a change of its own.
    assert read[second["id"]]["text"] == f"-!{second['id']}"
    assert read[second["id"]]["page"] is None
    assert read[max(read)]["text"] == "e!"
    cover = {"cover": {"id": page["cover"], "text": "g"}}
    assert admin.patch(path, cover).status == 200
    assert admin.get(f"{parts.path}/{page['cover']}").data["text"] == f"g!{page['cover']}"


def test_related_items_that_stay_as_they_are_pass_no_flow(
    admin: Client, pages_with_parts: Table, parts: Table
) -> None:
    page = admin.post(pages_with_parts.path, {"parts": [{"text": "a"}]}).data
    filter_flow(admin, parts, [REFUSE], "update")
    path = f"{pages_with_parts.path}/{page['id']}"
    assert admin.patch(path, {"title": "b", "parts": page["parts"]}).status == 200
    refused = admin.patch(path, {"parts": []})
    assert refused.codes == ["KEPT"]
    assert refused.errors[0]["path"] == ["parts"]
    new = admin.post(parts.path, {"text": "b"}).data["id"]
    refused = admin.patch(path, {"parts": [*page["parts"], new]})
    assert refused.codes == ["KEPT"]
    assert refused.errors[0]["path"] == ["parts", 1]


def test_a_filter_flow_sees_the_owner_of_a_related_item(
    admin: Client, pages_with_parts: Table, parts: Table
) -> None:
    show = {"text": "page {{$trigger.payload.page}}"}
    filter_flow(admin, parts, [step("show", "transform", {"json": show})], "create", "update")
    page = admin.post(pages_with_parts.path, {"title": "a"}).data["id"]
    part = admin.post(parts.path, {"text": "b"}).data["id"]
    changed = admin.patch(f"{pages_with_parts.path}/{page}", {"parts": [part, {"text": "c"}]})
    assert changed.status == 200
    assert texts(parts) == [f"page {page}"] * 2
    assert len(admin.get(f"{pages_with_parts.path}/{page}").data["parts"]) == 2


def test_what_a_flow_nests_is_filtered_and_authorized_too(
    stage: Stage, admin: Client, pages_with_parts: Table, parts: Table
) -> None:
    nest = {"title": "a", "parts": [{"text": "nested"}]}
    filter_flow(admin, pages_with_parts, [step("nest", "transform", {"json": nest})], "create")
    filter_flow(admin, parts, [RENAME], "create")
    assert admin.post(pages_with_parts.path, {}).status == 200
    assert texts(parts) == ["nested!"]
    caller = member(
        stage,
        may(pages_with_parts.name, action="create"),
        may(pages_with_parts.name),
        may(parts.name),
    )
    assert caller.post(pages_with_parts.path, {}).status == 403
    assert texts(parts) == ["nested!"]


@pytest.mark.release
def test_what_a_flow_makes_of_a_related_item_is_checked_as_if_it_was_sent(
    stage: Stage, admin: Client, pages_with_parts: Table, parts: Table
) -> None:
    page = admin.post(pages_with_parts.path, {"parts": [{"text": "a"}]}).data
    (part,) = page["parts"]
    results: list[tuple[Json, int, str]] = [
        ({"nonsense": 1}, 400, "nonsense"),
        ({"id": 999, "text": "b"}, 400, "id"),
        ({"place": "first"}, 400, "place"),
    ]
    for result, status, name in results:
        filter_flow(admin, parts, [step("x", "transform", {"json": result})], "update")
        change = {"parts": {"update": [{"id": part, "text": "b"}]}}
        answer = admin.patch(f"{pages_with_parts.path}/{page['id']}", change)
        assert (answer.status, answer.errors[0]["path"]) == (
            status,
            ["parts", "update", 0, name],
        ), answer.text
        assert admin.delete("/flows", [admin.get("/flows").data[0]["id"]]).status == 204
    filter_flow(admin, parts, [RENAME], "create")
    # The flow sets a field that this caller may not.
    caller = member(
        stage,
        may(pages_with_parts.name, action="create"),
        may(pages_with_parts.name),
        may(parts.name, "place", "page", action="create"),
        may(parts.name),
    )
    assert caller.post(pages_with_parts.path, {"parts": [{"place": 3}]}).status == 403
    assert texts(parts) == ["a"]


def test_deletions_inside_a_write_are_filtered(admin: Client, stage: Stage, parts: Table) -> None:
    pages = stage.empty_table(field("title", "string"))
    list_of = {"collection": parts.name, "field": "page", "related_collection": pages.name}
    meta = {"one_field": "parts", "one_deselect_action": "delete"}
    assert admin.post("/relations", {**list_of, "meta": meta}).status == 200
    page = admin.post(pages.path, {"parts": [{"text": "a"}]}).data
    filter_flow(admin, parts, [REFUSE], "delete")
    changes: list[object] = [[], {"delete": page["parts"]}]
    for change in changes:
        assert admin.patch(f"{pages.path}/{page['id']}", {"parts": change}).codes == ["KEPT"]
    assert texts(parts) == ["a"]


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("csv", "id,text\n{key},a\n,b\n"),
        ("json", '[{{"id": {key}, "text": "a"}}, {{"text": "b"}}]'),
        ("jsonl", '{{"id": {key}, "text": "a"}}\n{{"text": "b"}}\n'),
    ],
)
def test_imports_are_filtered(admin: Client, parts: Table, form: str, content: str) -> None:
    key = admin.post(parts.path, {"text": "old"}).data["id"]
    filter_flow(admin, parts, [RENAME], "create", "update")
    assert post_file(parts, content.format(key=key), form=form).status == 200
    assert texts(parts) == [f"a!{key}", "b!"]


def test_an_import_reports_the_lines_that_a_flow_refuses(admin: Client, parts: Table) -> None:
    rule = {"$trigger": {"payload": {"text": {"_neq": "bad"}}}}
    steps = [step("check", "condition", {"filter": rule}, reject="stop"), REFUSE]
    filter_flow(admin, parts, steps, "create")
    answer = post_file(parts, "text\nfine\nbad\ngood\nbad\n")
    assert answer.status == 409
    assert [error["line"] for error in answer.errors] == [3, 5]
    assert texts(parts) == []


def test_an_import_filters_what_its_rows_nest(
    admin: Client, pages_with_parts: Table, parts: Table
) -> None:
    filter_flow(admin, parts, [RENAME], "create")
    answer = post_file(pages_with_parts, '[{"title": "a", "parts": [{"text": "b"}]}]', form="json")
    assert answer.status == 200
    assert texts(parts) == ["b!"]


def test_a_singleton_passes_the_flows_of_what_is_done_to_it(stage: Stage, admin: Client) -> None:
    single = table(admin, field("text", "string"), singleton=True)
    filter_flow(admin, single, [RENAME], "create")
    assert admin.patch(single.path, {"text": "a"}).data["text"] == "a!"
    assert admin.patch(single.path, {"text": "b"}).data["text"] == "b"


def test_keys_are_shown_as_reads_show_them(admin: Client, parts: Table) -> None:
    item = admin.post(parts.path, {"text": "a"}).data["id"]
    show = {"place": "{{$trigger.keys[0]}}"}
    filter_flow(admin, parts, [step("show", "transform", {"json": show})], "update")
    code = "module.exports = (data) => { if (typeof data.$trigger.keys[0] !== 'number') throw 1 }"
    filter_flow(admin, parts, [step("kind", "exec", {"code": code})], "update", "delete")
    assert admin.patch(f"{parts.path}/{item}", {"text": "b"}).data["place"] == item
    assert admin.patch(parts.path, [{"id": item, "text": "b"}]).status == 200
    assert admin.delete(f"{parts.path}/{item}").status == 204


def test_a_flow_does_not_turn_a_change_to_another_item(admin: Client, parts: Table) -> None:
    first, second = (item["id"] for item in parts.add({"text": "a"}, {"text": "b"}))
    steps = [step("other", "transform", {"json": {"id": second, "text": "c"}})]
    filter_flow(admin, parts, steps, "update")
    for answer in (
        admin.patch(f"{parts.path}/{first}", {"text": "x"}),
        admin.patch(parts.path, [{"id": first, "text": "x"}]),
        admin.patch(parts.path, {"keys": [first], "data": {"text": "x"}}),
    ):
        assert (answer.status, answer.errors[0]["field"]) == (400, "id"), answer
    assert texts(parts) == ["a", "b"]


def test_a_refused_item_of_an_array_is_named(admin: Client, parts: Table) -> None:
    filter_flow(admin, parts, [REFUSE], "create")
    assert admin.post(parts.path, [{"text": "a"}, {"text": "b"}]).errors[0]["index"] == 0
    assert "index" not in admin.post(parts.path, {"text": "a"}).errors[0]


def test_a_batch_passes_flows_operation_by_operation(
    admin: Client, pages_with_parts: Table, parts: Table
) -> None:
    filter_flow(admin, parts, [RENAME], "create", "update")
    key = parts.add({"text": "a"})[0]["id"]
    operations = [
        {"method": "create", "collection": parts.name, "data": [{"text": "b"}, {"text": "c"}]},
        {"method": "update", "collection": parts.name, "key": key, "data": {"text": "d"}},
        {
            "method": "create",
            "collection": pages_with_parts.name,
            "data": {"parts": [{"text": "e"}]},
        },
    ]
    assert admin.post("/batch", {"operations": operations}).status == 200
    assert texts(parts) == [f"d!{key}", "b!", "c!", "e!"]


def test_conditions_and_repeated_calls_hold_for_filtered_writes(
    admin: Client, parts: Table
) -> None:
    filter_flow(admin, parts, [RENAME], "create", "update")
    headers = {"Idempotency-Key": "filtered-1"}
    first = admin.send("POST", parts.path, {"text": "a"}, **headers)
    again = admin.send("POST", parts.path, {"text": "a"}, **headers)
    assert (first.status, again.status, first.data) == (200, 200, again.data)
    assert texts(parts) == ["a!"]
    path = f"{parts.path}/{first.data['id']}"
    version = admin.get(path).headers["etag"]
    assert admin.send("PATCH", path, {"text": "b"}, **{"If-Match": version}).status == 200
    assert admin.send("PATCH", path, {"text": "c"}, **{"If-Match": version}).status == 412
    assert texts(parts) == [f"b!{first.data['id']}"]


def test_filter_flows_that_cause_themselves_come_to_an_end(
    admin: Client, parts: Table, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cms")
    again = {"collection": parts.name, "payload": {"text": "again"}}
    filter_flow(admin, parts, [step("again", "item-create", again)], "create")
    assert admin.post(parts.path, {"text": "a"}).status == 422
    assert texts(parts) == []
    # The log of a run is undone with its write: that of the service tells the reason.
    assert "10 runs of flows in a row have each caused the next one" in caplog.text
    silent = step("again", "item-create", {**again, "emitEvents": False})
    assert admin.delete("/flows", [admin.get("/flows").data[0]["id"]]).status == 204
    filter_flow(admin, parts, [silent], "create")
    assert admin.post(parts.path, {"text": "a"}).status == 200
    assert sorted(texts(parts)) == ["a", "again"]


def test_the_log_of_a_refused_write_has_the_reason_and_no_value_of_the_item(
    admin: Client, parts: Table, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cms")
    rule = {"$trigger": {"payload": {"text": {"_eq": "allowed"}}}}
    filter_flow(admin, parts, [step("check", "condition", {"filter": rule})], "create")
    assert admin.post(parts.path, {"text": "a confidential text"}).status == 422
    (line,) = [text for text in caplog.messages if "refuses a write" in text]
    assert 'The operation "check" was rejected.' in line
    assert "confidential" not in line


def test_a_flow_may_make_a_wrong_item_right(admin: Client, parts: Table) -> None:
    steps = [step("right", "transform", {"json": {"place": 1, "text": "right"}})]
    filter_flow(admin, parts, steps, "create")
    assert admin.post(parts.path, {"place": "wrong", "nonsense": 1}).data["text"] == "right"


# Files, folders and users


def test_uploads_are_filtered(admin: Client) -> None:
    code = """module.exports = ({ $trigger: { payload } }) => {
      if (payload.filesize > 10 || payload.type !== "text/plain") throw "no";
      return { ...payload, title: payload.title + "!" };
    };"""
    options = {"type": "filter", "scope": ["files.upload"]}
    make_flow(admin, "event", options, [step("small", "exec", {"code": code})])
    body = {"data": "aGVsbG8=", "filename_download": "a.txt"}
    file = admin.post("/files", body)
    assert file.data["title"] == "A!"
    large = {"data": "aGVsbG8=" * 9, "filename_download": "a.txt"}
    assert admin.post("/files", large).status == 400
    assert admin.post("/files", {**body, "data": "aGVsbG8gaGVsbG8gaGVsbG8="}).status == 422


def test_files_cannot_be_moved_by_flows(admin: Client) -> None:
    body = {"data": "aGVsbG8=", "filename_download": "a.txt"}
    file = admin.post("/files", body).data["id"]
    options = {"type": "filter", "scope": ["files.create", "files.update"]}
    steps = [step("move", "transform", {"json": {"filename_disk": "../../etc/passwd"}})]
    make_flow(admin, "event", options, steps)
    for answer in (
        admin.post("/files", body),
        admin.patch(f"/files/{file}", {"title": "b"}),
        admin.patch("/files", {"keys": [file], "data": {"title": "b"}}),
        admin.patch("/files", [{"id": file, "title": "b"}]),
    ):
        assert (answer.status, answer.errors[0]["field"]) == (400, "filename_disk"), answer.text


def test_changes_and_deletions_of_files_and_folders_are_filtered(admin: Client) -> None:
    folder = admin.post("/folders", {"name": "a"}).data["id"]
    body = {"data": "aGVsbG8=", "filename_download": "a.txt", "folder": folder}
    file = admin.post("/files", body).data["id"]
    scope = ["files.update", "folders.create", "folders.update"]
    for name, json in (("files", {"title": "T"}), ("folders", {"name": "N"})):
        events = [event for event in scope if event.startswith(name)]
        options = {"type": "filter", "scope": events}
        make_flow(admin, "event", options, [step("name", "transform", {"json": json})])
    assert admin.patch(f"/files/{file}", {"title": "b"}).data["title"] == "T"
    assert admin.patch("/files", [{"id": file, "title": "b"}]).data[0]["title"] == "T"
    assert admin.patch(f"/folders/{folder}", {"name": "b"}).data["name"] == "N"
    assert admin.post("/folders", {"name": "c"}).data["name"] == "N"
    make_flow(admin, "event", {"type": "filter", "scope": ["files.delete"]}, [REFUSE])
    assert admin.delete(f"/files/{file}").codes == ["KEPT"]
    assert admin.delete(f"/folders/{folder}").codes == ["KEPT"]
    assert admin.get(f"/files/{file}").status == 200


def test_a_user_changes_itself_through_filters(stage: Stage, admin: Client) -> None:
    changes = may("system_users", "first_name", action="update")
    caller = member(stage, changes, may("system_users", "first_name", "id"))
    options = {"type": "filter", "scope": ["users.update"]}
    steps = [step("name", "transform", {"json": {"first_name": "Filtered"}})]
    make_flow(admin, "event", options, steps)
    assert caller.patch("/users/me", {"first_name": "A"}).data["first_name"] == "Filtered"
    # Nobody becomes an administrator by what a flow returns.
    role = {"role": "{{$trigger.payload.first_name}}"}
    make_flow(admin, "event", options, [step("role", "transform", {"json": role})])
    assert caller.patch("/users/me", {"first_name": "A"}).status == 403


def test_no_flow_runs_for_a_caller_who_may_not_write(
    stage: Stage, admin: Client, parts: Table
) -> None:
    open_part, closed_part = (
        part["id"] for part in parts.add({"text": "open"}, {"text": "closed"})
    )
    filter_flow(admin, parts, [REFUSE], "create", "update")
    reader = member(
        stage,
        may(parts.name),
        may(parts.name, action="update", permissions={"text": {"_eq": "open"}}),
    )
    # Their own flow refuses what they may do; anything else does not reach it.
    assert reader.patch(f"{parts.path}/{open_part}", {"text": "x"}).status == 409
    for answer in (
        reader.patch(f"{parts.path}/{closed_part}", {"text": "x"}),
        reader.patch(parts.path, {"keys": [closed_part], "data": {"text": "x"}}),
        reader.patch(parts.path, [{"id": closed_part, "text": "x"}]),
        reader.post(parts.path, {"text": "x"}),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    assert reader.patch(f"{parts.path}/999", {"text": "x"}).status == 404


@pytest.mark.release
def test_no_flow_runs_for_nested_items_that_a_caller_may_not_write(
    stage: Stage, admin: Client, pages_with_parts: Table, parts: Table
) -> None:
    filter_flow(admin, parts, [REFUSE], "create")
    writer = member(
        stage,
        may(pages_with_parts.name),
        may(pages_with_parts.name, action="create"),
        may(parts.name),
    )
    answer = writer.post(pages_with_parts.path, {"title": "a", "parts": [{"text": "b"}]})
    assert (answer.status, answer.codes) == (403, ["FORBIDDEN"])
