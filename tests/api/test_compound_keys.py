"""Keys of several columns: every call that names an item, in tables of other programs."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.client import Client
from tests.file_imports import TYPES
from tests.members import may, member, new_role
from tests.shop import KEY, history, lines
from tests.things import Stage

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def api(stage: Stage) -> Client:
    return stage.admin


# Keys in paths, in bodies and in answers


def test_an_item_is_named_by_its_values_with_commas_between_them(api: Client) -> None:
    item = api.get(KEY).data
    assert (item["order_id"], item["line"], item["product"]) == (17, 2, 2)
    assert api.get("/items/order_items/17%2C2").data == item
    for path in ("17,3", "17", "17,2,1", "a,2", ",", "17,"):
        assert api.get(f"/items/order_items/{path}").status == 404, path


def test_each_column_of_the_key_says_that_it_is_one(api: Client) -> None:
    schemas = [field["schema"] for field in api.get("/fields/order_items").data if field["schema"]]
    keys = [schema["name"] for schema in schemas if schema["is_primary_key"]]
    assert keys == ["order_id", "line"]
    assert not any(schema["is_unique"] for schema in schemas)


def test_items_are_created_changed_and_deleted(api: Client) -> None:
    created = api.post("/items/order_items", {"order_id": 18, "line": 2, "product": 2}).data
    assert (created["line"], created["amount"]) == (2, 1)
    assert api.patch("/items/order_items/18,2", {"amount": 7}).data["amount"] == 7
    items = [{"order_id": 18, "line": line, "amount": line} for line in (2, 1)]
    assert [item["amount"] for item in api.patch("/items/order_items", items).data] == [2, 1]
    assert api.delete("/items/order_items/18,2").status == 204
    assert lines(api, 18) == [(1, "1")]
    assert history(api, "order_items") == [
        ("create", "18,2"),
        ("update", "18,2"),
        ("update", "18,1"),
        ("update", "18,2"),
        ("delete", "18,2"),
    ]


def test_items_are_changed_and_deleted_by_keys_and_by_a_query(api: Client) -> None:
    changed = api.patch("/items/order_items", {"keys": [[17, 10], "17,1"], "data": {"amount": 9}})
    assert [item["line"] for item in changed.data] == [10, 1]
    query = {"query": {"filter": {"order_id": 17}}, "data": {"product": 3}}
    assert [item["line"] for item in api.patch("/items/order_items", query).data] == [1, 2, 10]
    assert api.delete("/items/order_items", [[17, 1], [17, 10]]).status == 204
    assert lines(api, 17) == [(2, "2")]
    unknown = {"keys": [[17, 2], [17, 3]], "data": {"amount": 8}}
    assert api.patch("/items/order_items", unknown).status == 404
    assert lines(api, 17) == [(2, "2")]


@pytest.mark.parametrize("key", [17, [17], [17, 2, 3], [17, None], {"line": 1}, None, [[17, 2]]])
def test_a_key_of_another_shape_names_nothing(api: Client, key: object) -> None:
    for call in (
        api.patch("/items/order_items", {"keys": [key], "data": {"amount": 5}}),
        api.delete("/items/order_items", {"keys": [key]}),
    ):
        assert call.status in (400, 404), call
    assert len(api.get("/items/order_items").data) == 4


def test_items_without_a_part_of_their_key_are_refused(api: Client) -> None:
    assert api.post("/items/order_items", {"order_id": 18}).codes == ["FAILED_VALIDATION"]
    assert api.patch("/items/order_items", [{"order_id": 17}]).errors[0]["reason"] == (
        "it must hold its primary key"
    )
    twice = [{"order_id": 17, "line": 1}, {"line": "1", "order_id": "17"}]
    assert api.patch("/items/order_items", twice).errors[0]["reason"] == "it is there twice"
    again = api.post("/items/order_items", {"order_id": 17, "line": 1})
    assert again.codes == ["RECORD_NOT_UNIQUE"]


def test_a_batch_names_items_by_arrays(api: Client) -> None:
    operations = [
        {"method": "create", "collection": "order_items", "data": {"order_id": 19, "line": 1}},
        {"method": "update", "collection": "order_items", "key": [17, 2], "data": {"amount": 5}},
        {"method": "update", "collection": "order_items", "keys": [[17, 1], [18, 1]],
         "data": {"amount": 6}},
        {"method": "read", "collection": "order_items", "key": [17, 2]},
        {"method": "delete", "collection": "order_items", "keys": ["17,10"]},
    ]  # fmt: skip
    answer = api.post("/batch", {"operations": operations}).data
    assert answer[3]["amount"] == 5
    assert lines(api, 17) == [(1, "6"), (2, "5")]


ODD_TEXTS = ("", ",", "%", "%2C", "a/b", "a,b%2Cc", " x ", "ü?#&+", "..", '"\\', "100%,")


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_keys_hold_any_text_and_every_digit_of_a_time(api: Client, text: str) -> None:
    row = {"a": text, "b": "2026-01-02T03:04:05.123456Z", "v": "x"}
    created = api.post("/items/odd", row).data
    assert created["b"] == "2026-01-02T03:04:05.123456Z"
    listed = api.get("/items/odd").data
    assert listed == [created]
    (item,) = [revision["item"] for revision in api.get("/revisions?fields=item").data]
    # As the history names it, and encoded as a whole once more.
    for path in (quote(item, safe=",%:"), quote(item, safe="")):
        assert api.get(f"/items/odd/{path}").data == created, path
    values = [created["b"], created["a"], created["c"]]
    answer = api.patch("/items/odd", {"keys": [values], "data": {"v": "y"}})
    assert [each["v"] for each in answer.data] == ["y"]
    again = api.patch("/items/odd", [{**created, "v": "z"}]).data
    assert [each["v"] for each in again] == ["z"]
    assert api.delete("/items/odd", [values]).status == 204


# Order and pages


def test_the_key_ends_every_order_column_by_column(api: Client) -> None:
    keys = [(item["order_id"], item["line"]) for item in api.get("/items/order_items").data]
    assert keys == [(17, 1), (17, 2), (17, 10), (18, 1)]
    by_product = api.get("/items/order_items?sort=-product&fields=order_id,line").data
    assert [tuple(item.values()) for item in by_product] == [(17, 10), (17, 2), (17, 1), (18, 1)]


@pytest.mark.parametrize("sort", ["", "-line", "product", "-amount,order_id"])
def test_pages_with_a_cursor_go_through_all_items(api: Client, sort: str) -> None:
    whole = api.get(f"/items/order_items?sort={sort}").data
    path = f"/items/order_items?sort={sort}&limit=1"
    body = api.get(f"{path}&meta=next_cursor").body
    pages = body["data"]
    for _ in whole[1:]:
        body = api.get(f"{path}&page[after]={body['meta']['next_cursor']}").body
        pages += body["data"]
    assert (pages, body["meta"]) == (whole, {"next_cursor": None})


# Changed keys


def test_the_columns_of_a_key_are_changed_like_others(api: Client) -> None:
    moved = api.patch("/items/order_items/17,1", {"line": 3, "amount": 5}).data
    assert (moved["line"], moved["amount"]) == (3, 5)
    assert api.get("/items/order_items/17,1").status == 404
    same = api.patch("/items/order_items/17,3", {"order_id": 17, "line": 3, "amount": 6})
    assert same.data["amount"] == 6
    assert history(api, "order_items") == [("update", "17,3")] * 2
    # A shipment points to the line 2.
    assert api.patch(KEY, {"line": 4}).codes == ["INVALID_FOREIGN_KEY"]
    taken = api.patch("/items/order_items/17,3", {"line": 2})
    assert taken.codes == ["RECORD_NOT_UNIQUE"]
    many = {"query": {"filter": {"product": {"_in": [1, 3]}}}, "data": {"order_id": 19}}
    changed = api.patch("/items/order_items", many).data
    assert [(item["order_id"], item["line"]) for item in changed] == [(19, 3), (19, 10), (19, 1)]


def test_a_column_of_a_key_takes_no_null(api: Client) -> None:
    assert api.patch(KEY, {"line": None}).codes == ["FAILED_VALIDATION"]


def test_a_key_of_one_column_is_changed_too(api: Client) -> None:
    assert api.patch("/items/products/3", {"id": 4, "name": "jug"}).codes == ["INVALID_FOREIGN_KEY"]
    assert api.patch("/items/orders/19", {"id": 20}).data["id"] == 20
    assert api.get("/items/orders/19").status == 404
    assert api.get("/items/orders/20/revisions").data[0]["delta"] == {"id": 20}
    # The sequence does not draw the key later on.
    assert api.post("/items/orders", {}).data["id"] == 21


def test_changing_a_key_takes_the_right_to_change_its_columns(stage: Stage) -> None:
    ann = member(stage, may("order_items"), may("order_items", "amount", action="update"))
    assert ann.patch(KEY, {"order_id": 17, "line": 2, "amount": 3}).status == 200
    assert ann.patch(KEY, {"line": 3}).codes == ["FORBIDDEN"]
    assert ann.patch("/items/order_items", [{"order_id": 17, "line": 2, "amount": 4}]).status == 200


# Lists


def test_elements_of_lists_need_not_name_their_owner(api: Client) -> None:
    elements = [{"line": 1, "amount": 5}, {"line": 5, "product": 3}, [17, 2], "17,10"]
    listed = api.patch("/items/orders/17", {"items": elements}).data["items"]
    assert listed == [[17, 1], [17, 2], [17, 5], [17, 10]]
    assert lines(api, 17) == [(1, "5"), (2, "2"), (5, "1"), (10, "3")]
    # Those that hold nothing but their key are not written.
    assert history(api, "order_items") == [("create", "17,5"), ("update", "17,1")]


def test_changes_of_a_list_name_elements_by_any_form_of_their_keys(api: Client) -> None:
    changes = {
        "create": [{"line": 6}, {"order_id": "+", "line": 7}],
        "update": [{"line": 2, "amount": 22}],
        "delete": [{"line": 10}, [17, 1]],
    }
    answer = api.patch("/items/orders/17", {"items": changes})
    assert answer.data["items"] == [[17, 2], [17, 6], [17, 7]]
    assert lines(api, 17)[0] == (2, "22")
    for wrong in ([17, 1], {"line": 99}, [18, 1], "17,1"):
        refused = api.patch("/items/orders/17", {"items": {"delete": [wrong]}})
        assert refused.codes == ["INVALID_FOREIGN_KEY"], wrong
    shapeless: list[object] = [17, [17], {"order_id": 17}, None]
    for shape in shapeless:
        refused = api.patch("/items/orders/17", {"items": {"delete": [shape]}})
        assert refused.status == 400, shape


def test_what_leaves_a_list_is_deleted_where_its_key_holds_its_owner(api: Client) -> None:
    assert api.patch("/items/orders/17", {"items": [{"line": 1}]}).status == 200
    assert lines(api, 17) == [(1, "1")]
    assert history(api, "order_items") == [
        ("delete", "17,2"),
        ("delete", "17,10"),
    ]


def test_an_element_that_a_list_takes_over_changes_its_key(api: Client) -> None:
    assert api.patch("/items/orders/19", {"items": [[18, 1]]}).data["items"] == [[19, 1]]
    assert lines(api, 18) == []
    assert history(api, "order_items") == [("update", "19,1")]


def test_a_new_owner_gives_its_key_to_its_list(api: Client) -> None:
    created = api.post("/items/orders", {"note": "n", "items": [{"line": 1}, {"line": 2}]}).data
    assert created["items"] == [[created["id"], 1], [created["id"], 2]]
    twice = api.post("/items/orders", {"items": [{"line": 1}, {"line": 1}]})
    assert twice.status == 400


def test_a_junction_that_is_keyed_by_both_sides_needs_no_id(api: Client) -> None:
    tags = [{"tag": "new"}, {"tag": {"name": "x,y%"}}, {"tag": {"name": "fresh"}}]
    listed = api.patch("/items/orders/17", {"tags": tags}).data["tags"]
    assert listed == [[17, "fresh"], [17, "new"], [17, "x,y%"]]
    assert api.get("/items/orders/17?fields=tags.tag.colour").data["tags"][2] == {
        "tag": {"colour": "grey"}
    }
    item = {"items": [{"line": 1, "product": {"id": 9, "labels": [{"tag": "deep"}]}}]}
    assert api.post("/items/orders", item).status == 200
    assert api.get("/items/labels/9,deep").status == 200


def test_lists_pass_the_rights_of_their_rows(stage: Stage) -> None:
    ann = member(
        stage,
        may("orders"),
        may("orders", action="update"),
        may("order_items", permissions={"line": {"_lt": 10}}),
        may("order_items", "amount", action="update", permissions={"line": {"_lt": 2}}),
        may("order_items", action="delete", permissions={"line": {"_eq": 2}}),
    )
    # The hidden row with the line 10 stays, and line 2 may be deleted.
    elements = {"items": [{"line": 1, "amount": 7}]}
    assert ann.patch("/items/orders/17", elements).data["items"] == [[17, 1]]
    assert lines(stage.admin, 17) == [(1, "7"), (10, "3")]
    for element in ({"line": 3}, {"line": 1, "product": 2}, [18, 1]):
        refused = ann.patch("/items/orders/17", {"items": {"create": [element]}})
        assert refused.status in (400, 403), element
    assert ann.get("/items/order_items/17,10").status in (403, 404)


def test_what_one_may_do_with_such_an_item(stage: Stage) -> None:
    ann = member(
        stage,
        may("order_items"),
        may("order_items", action="update", permissions={"line": {"_eq": 2}}),
    )
    for line, access in ((1, False), (2, True)):
        answer = ann.get(f"/permissions/me/order_items/17,{line}").data
        assert answer["update"]["access"] is access
    assert ann.get("/permissions/me/order_items/17,3").status == 404


# Versions, repeated calls


def test_versions_and_idempotency_keys_hold_for_such_items(api: Client) -> None:
    etag = api.get(KEY).headers["etag"]
    assert api.send("PATCH", KEY, {"amount": 5}, **{"If-Match": etag}).status == 200
    assert api.send("PATCH", KEY, {"amount": 6}, **{"If-Match": etag}).status == 412
    body = {"order_id": 19, "line": 1}
    header = {"Idempotency-Key": "once"}
    first = api.send("POST", "/items/order_items", body, **header)
    assert api.send("POST", "/items/order_items", body, **header).content == first.content
    deleted = {"Idempotency-Key": "gone"}
    for _ in range(2):
        assert api.send("DELETE", "/items/order_items/19,1", **deleted).status == 204


# History, comments, shares


def test_a_revision_brings_the_values_of_such_an_item_back(api: Client) -> None:
    for amount in (5, 6):
        api.patch(KEY, {"amount": amount})
    first, _ = api.get(f"{KEY}/revisions?sort=id").data
    assert (first["item"], first["data"]["amount"]) == ("17,2", 5)
    assert api.post(f"/utils/revert/{first['id']}").data["amount"] == 5
    assert history(api, "order_items")[-1] == ("revert", "17,2")


def test_the_history_shows_items_to_those_who_see_them(stage: Stage) -> None:
    stage.admin.patch("/items/order_items", {"keys": [[17, 2], [18, 1]], "data": {"amount": 8}})
    ann = member(
        stage,
        may("order_items", permissions={"order_id": {"_eq": 17}}),
        may("system_activity"),
        may("system_revisions"),
    )
    assert [entry["item"] for entry in ann.get("/activity").data] == ["17,2"]
    assert [entry["item"] for entry in ann.get("/revisions").data] == ["17,2"]
    assert len(ann.get(f"{KEY}/revisions").data) == 1
    assert ann.get("/items/order_items/18,1/revisions").status in (403, 404)


def test_comments_and_shares_name_such_items(stage: Stage) -> None:
    api = stage.admin
    comment = {"collection": "order_items", "item": "17,2", "comment": "well"}
    assert api.post("/activity/comment", comment).status == 200
    for item, status in (("17,3", 404), ([17, 2], 400)):
        assert api.post("/activity/comment", {**comment, "item": item}).status == status
    listed = api.get("/activity?filter[action]=comment&fields=item").data
    assert {entry["item"] for entry in listed} == {"17,2"}
    role = new_role(stage, may("order_items"))
    share = {"collection": "order_items", "item": "17,2", "role": role}
    created = api.post("/shares", share).data
    token = api.post("/shares/auth", {"share": created["id"]}).data["access_token"]
    guest = stage.anonymous.bearing(token)
    assert [item["line"] for item in guest.get("/items/order_items").data] == [2]
    assert guest.get("/items/order_items/17,1").status in (403, 404)


# Manual order, imports and exports


def test_items_move_in_their_manual_order(api: Client) -> None:
    assert api.patch("/collections/queue", {"meta": {"sort_field": "position"}}).status == 200
    moved = api.post("/utils/sort/queue", {"item": ["b", 2], "to": "a,1"})
    assert moved.status in (200, 204), moved
    order = [(item["lane"], item["number"]) for item in api.get("/items/queue").data]
    assert order == [("b", 2), ("a", 1), ("a", 2), ("b", 1)]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_an_import_matches_rows_by_their_keys(api: Client, format: str) -> None:
    exported = api.get(f"/items/labels?export={format}").content
    changed = exported.replace(b"white", b"black")
    headers = {"Content-Type": TYPES[format]}
    answer = api.send("POST", "/utils/import/labels", raw=changed, **headers)
    assert answer.status == 200, answer
    assert (answer.data["created"], answer.data["updated"]) == (1, 2)
    assert len(api.get("/items/labels").data) == 4


# Flows, explanations, descriptions


def test_operations_of_flows_name_items_by_arrays(stage: Stage) -> None:
    api = stage.admin
    operations = [
        ("one", "item-read", {"collection": "order_items", "key": [17, 2]}),
        ("two", "item-read", {"collection": "order_items", "key": [[17, 1], [17, 2]]}),
        ("three", "item-update", {"collection": "order_items", "key": [[17, 1], [17, 2]],
                                  "payload": {"amount": 8}}),
        ("four", "item-delete", {"collection": "order_items", "key": ["17", "10"]}),
    ]  # fmt: skip
    flow = api.post(
        "/flows",
        {"name": "f", "status": "active", "trigger": "webhook",
         "options": {"method": "POST", "return": "$all"}},
    ).data["id"]  # fmt: skip
    next_id = None
    for key, kind, options in reversed(operations):
        body = {"flow": flow, "key": key, "type": kind, "options": options, "resolve": next_id,
                "position_x": 1, "position_y": 1}  # fmt: skip
        next_id = api.post("/operations", body).data["id"]
    assert api.patch(f"/flows/{flow}", {"operation": next_id}).status == 200
    answer = api.post(f"/flows/trigger/{flow}", {})
    data = answer.body.get("data", answer.body)
    assert data["one"]["line"] == 2
    assert [item["line"] for item in data["two"]] == [1, 2]
    assert data["three"] == [[17, 1], [17, 2]]
    assert data["four"] == [[17, 10]]
    assert api.delete(f"/flows/{flow}").status == 204


def test_events_and_calls_of_flows_name_items_by_arrays(stage: Stage) -> None:
    api = stage.admin
    scope = ["items.create", "items.update", "items.delete"]
    options = {"type": "action", "scope": scope, "collections": ["order_items"]}
    settings = {"name": "f", "status": "active", "trigger": "event"}
    flow = api.post("/flows", {**settings, "options": options}).data["id"]
    api.post("/items/order_items", {"order_id": 19, "line": 1})
    api.patch("/items/order_items", {"query": {"filter": {"order_id": 17}}, "data": {"amount": 5}})
    api.patch("/items/order_items/19,1", {"line": 2})
    api.delete("/items/order_items", ["19,2"])
    runs = f"SELECT json_agg(input) FROM system_flow_runs WHERE flow = '{flow}'"
    events = stage.value(runs)
    keys = [(event["event"], event.get("keys") or event["key"]) for event in events]
    # A change of a key is told under the new one.
    assert sorted(keys) == [
        ("items.create", [19, 1]),
        ("items.delete", [[19, 2]]),
        ("items.update", [[17, 1], [17, 2], [17, 10]]),
        ("items.update", [[19, 2]]),
    ]
    assert api.delete(f"/flows/{flow}").status == 204

    manual = {**settings, "trigger": "manual", "options": {"collections": ["order_items"]}}
    flow = api.post("/flows", manual).data["id"]
    sent: list[tuple[object, int]] = [([[17, 1], "17,2"], 200), ([[17, 3]], 404), ([17], 404)]
    for named, status in sent:
        body = {"collection": "order_items", "keys": named}
        assert api.post(f"/flows/trigger/{flow}", body).status == status, named
    assert api.delete(f"/flows/{flow}").status == 204


def test_a_filter_flow_leaves_the_key_of_a_named_item_alone(stage: Stage) -> None:
    api = stage.admin
    options = {"type": "filter", "scope": ["items.update"], "collections": ["order_items"]}
    flow = {"name": "f", "status": "active", "trigger": "event", "options": options}
    flow_id = api.post("/flows", flow).data["id"]
    change = {"line": 7, "amount": "{{$trigger.payload.amount}}"}
    operation = {"flow": flow_id, "key": "x", "type": "transform", "options": {"json": change},
                 "position_x": 1, "position_y": 1}  # fmt: skip
    operation_id = api.post("/operations", operation).data["id"]
    assert api.patch(f"/flows/{flow_id}", {"operation": operation_id}).status == 200
    item = {"line": 2, "amount": 4}
    for refused in (
        api.patch("/items/order_items", [{"order_id": 17, **item}]),
        api.patch("/items/orders/17", {"items": {"update": [item]}}),
    ):
        assert refused.status == 400, refused
    # Of an item of a path the flow changes the key as a caller may.
    assert api.patch("/items/order_items/17,1", {"amount": 4}).data["line"] == 7
    assert api.delete(f"/flows/{flow_id}").status == 204


def test_reads_of_such_items_are_explained_and_found_by_index(api: Client) -> None:
    path = quote("/items/order_items/17,2", safe="")
    explained = api.get(f"/utils/explain?path={path}").data
    assert '"order_id" = ' in explained["statement"]
    assert '"line" = ' in explained["statement"]


def test_openapi_and_types_describe_such_keys(api: Client) -> None:
    schemas = api.get("/server/specs/oas").body["components"]["schemas"]
    (shipment,) = [
        schema["properties"]
        for schema in schemas.values()
        if schema.get("x-collection") == "shipments"
    ]
    key = shipment["order_items"]["anyOf"][0]["anyOf"][0]
    assert (key["type"], key["maxItems"]) == ("array", 2)
    types = api.get("/server/specs/types?language=typescript").text
    assert "order_items: [number, number] | OrderItems | null;" in types
    assert "items: [number, number][] | OrderItems[];" in types
