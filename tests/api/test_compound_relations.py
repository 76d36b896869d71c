"""Foreign keys of several columns are relations: read, filtered, sorted, written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.file_imports import TYPES
from tests.members import may, member
from tests.shop import KEY, fill_shop, history, lines, make_shop
from tests.things import Stage

Json = dict[str, Any]

TENANTS = """
CREATE TABLE authors (tenant integer, id integer, name text, PRIMARY KEY (tenant, id));
CREATE TABLE books (
    tenant integer, id integer, author integer, editor integer, PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, author) REFERENCES authors ON DELETE SET NULL (author),
    FOREIGN KEY (tenant, editor) REFERENCES authors ON DELETE SET NULL (editor)
);
INSERT INTO authors VALUES (1, 1, 'Ann'), (1, 2, 'Bob'), (2, 1, 'Cleo');
INSERT INTO books VALUES (1, 1, 1, 2), (1, 2, NULL, NULL);
"""


@pytest.fixture(scope="module", autouse=True)
def tables(stage: Stage) -> None:
    make_shop(stage)


@pytest.fixture(autouse=True)
def rows(stage: Stage, tables: None) -> None:
    fill_shop(stage)


@pytest.fixture
def api(stage: Stage) -> Client:
    return stage.admin


# Relations by foreign keys of several columns


def test_a_foreign_key_of_several_columns_is_a_relation(api: Client) -> None:
    (field,) = [one for one in api.get("/fields/shipments").data if one["field"] == "order_items"]
    assert (field["type"], field["schema"]) == ("alias", None)
    assert field["meta"]["special"] == ["m2o"]
    # In the order of the key that they point to.
    assert field["meta"]["columns"] == ["item_order", "item_line"]
    (relation,) = api.get("/relations/shipments").data
    assert relation["related_collection"] == "order_items"
    sent, none = api.get("/items/shipments").data
    assert (sent["order_items"], none["order_items"]) == ([17, 2], None)
    opened = api.get("/items/shipments?fields=order_items.product.name").data
    assert opened == [{"order_items": {"product": {"name": "cup"}}}, {"order_items": None}]
    assert api.get(f"{KEY}?fields=shipments.note").data == {"shipments": [{"note": "sent"}]}


@pytest.mark.parametrize(
    ("filter", "notes"),
    [
        ({"order_items": {"_eq": [17, 2]}}, ["sent"]),
        ({"order_items": {"_eq": "17,2"}}, ["sent"]),
        ({"order_items": {"_neq": [17, 2]}}, []),
        ({"order_items": {"_in": [[17, 2], [18, 1]]}}, ["sent"]),
        ({"order_items": {"_nin": [[18, 1]]}}, ["sent"]),
        ({"order_items": {"_null": True}}, ["none"]),
        ({"order_items": {"product": {"name": {"_eq": "cup"}}}}, ["sent"]),
        ({"order_items": {"order_id": {"note": "eighteen"}}}, []),
    ],
)
def test_such_relations_are_filtered_by(api: Client, filter: Json, notes: list[str]) -> None:
    found = api.search("/items/shipments", {"filter": filter, "fields": ["note"]}).data
    assert [item["note"] for item in found] == notes
    counted = {"filter": {"shipments": {"note": "sent"}}, "fields": ["line"]}
    assert api.search("/items/order_items", counted).data == [{"line": 2}]


@pytest.mark.parametrize(
    "query",
    [
        "filter[order_items][_eq]=17,2",
        "filter[order_items][_eq]=17&filter[order_items][_eq]=2",
        "filter[order_items][_eq][]=17&filter[order_items][_eq][]=2",
        "filter[order_items][_in][]=17,2&filter[order_items][_in][]=18,1",
    ],
)
def test_a_query_string_names_a_key_as_text_or_array(api: Client, query: str) -> None:
    for line in (2, 3):
        changed = query.replace("2", str(line))
        listed = api.get(f"/items/shipments?{changed}&fields=note").data
        assert listed == [{"note": "sent"}] * (line == 2), changed


@pytest.mark.parametrize("operand", [[17], [17, 2, 3], [], [[17, 2]], [17, None], ["$NOW", 1], 17])
def test_filters_by_what_is_no_key_are_refused(api: Client, operand: object) -> None:
    for filter in ({"_eq": operand}, {"_in": [operand]}):
        answer = api.search("/items/shipments", {"filter": {"order_items": filter}})
        assert answer.codes == ["INVALID_QUERY"], filter
    assert api.search("/items/orders", {"filter": {"id": {"_eq": [17, 2]}}}).status == 400
    assert api.search("/items/orders", {"filter": {"note": {"_in": [["a", "b"]]}}}).status == 400


def test_such_relations_are_sorted_by(api: Client) -> None:
    api.post("/items/shipments", [{"order_items": [17, 10]}, {"order_items": [17, 1]}])
    listed = api.get("/items/shipments?sort=-order_items&fields=order_items").data
    assert [item["order_items"] for item in listed] == [None, [17, 10], [17, 2], [17, 1]]
    by_name = api.get("/items/shipments?sort=order_items.product.name&fields=order_items").data
    assert [item["order_items"] for item in by_name] == [[17, 2], [17, 10], [17, 1], None]


def test_such_relations_are_written_by_key_and_by_object(api: Client) -> None:
    by_key = api.post("/items/shipments", {"order_items": [18, 1]}).data
    assert (by_key["item_order"], by_key["item_line"]) == (18, 1)
    path = f"/items/shipments/{by_key['id']}"
    assert api.patch(path, {"order_items": "17,1"}).data["order_items"] == [17, 1]
    created = api.patch(path, {"order_items": {"order_id": 19, "line": 4, "amount": 2}}).data
    assert created["order_items"] == [19, 4]
    changed = {"order_items": {"order_id": 19, "line": 4, "amount": 3}}
    assert api.patch(path, changed).data["order_items"] == [19, 4]
    assert lines(api, 19) == [(4, "3")]
    assert api.patch(path, {"order_items": None}).data["item_line"] is None
    assert api.patch(path, {"order_items": [99, 1]}).codes == ["INVALID_FOREIGN_KEY"]
    for wrong in (5, [18], "x", [None, 1]):
        assert api.patch(path, {"order_items": wrong}).codes == ["INVALID_PAYLOAD"], wrong


def test_lists_of_such_relations_are_written(api: Client) -> None:
    added = api.patch(KEY, {"shipments": [{"note": "a"}, 1]}).data["shipments"]
    assert len(added) == 2
    replaced = api.patch(KEY, {"shipments": [2]}).data["shipments"]
    assert replaced == [2]
    assert api.get("/items/shipments/1").data["order_items"] is None
    new = {"order_id": 19, "line": 9, "shipments": [{"note": "deep"}]}
    assert api.post("/items/order_items", new).status == 200
    assert api.get("/items/order_items/19,9?fields=shipments.note").data == {
        "shipments": [{"note": "deep"}]
    }


def test_what_was_read_of_such_a_relation_can_be_sent_back(stage: Stage) -> None:
    api = stage.admin
    # Of the second row only one of both columns is null.
    before = api.get("/items/shipments").data
    assert before[1]["item_line"] == 2
    assert api.patch("/items/shipments", before).data == before
    assert api.patch("/items/shipments/2", {"order_items": None}).data["item_line"] is None
    copy = {name: value for name, value in before[0].items() if name != "id"}
    assert api.post("/items/shipments", copy).data["order_items"] == [17, 2]


@pytest.mark.parametrize("format", ["csv", "json", "jsonl"])
def test_files_hold_such_relations(api: Client, format: str) -> None:
    before = api.get("/items/shipments").data
    exported = api.get(f"/items/shipments?fields=id,order_items&export={format}").content
    assert api.patch("/items/shipments/1", {"order_items": [18, 1]}).status == 200
    headers = {"Content-Type": TYPES[format]}
    imported = api.send("POST", "/utils/import/shipments", raw=exported, **headers)
    assert imported.data["updated"] == 2, imported
    assert api.get("/items/shipments").data[0] == before[0]


def test_such_a_relation_may_be_required(api: Client) -> None:
    path = "/fields/shipments/order_items"
    assert api.patch(path, {"meta": {"required": True}}).status == 200
    for call in (
        api.post("/items/shipments", {"note": "without"}),
        api.post("/items/shipments", {"item_order": 17}),
        api.patch("/items/shipments/1", {"order_items": None}),
        api.patch("/items/shipments/1", {"item_line": None}),
        api.patch("/items/order_items/17,2", {"shipments": []}),
    ):
        assert call.codes in (["FAILED_VALIDATION"], ["INVALID_PAYLOAD"]), call
    assert api.post("/items/shipments", {"order_items": [17, 1]}).status == 200
    assert api.patch("/items/shipments/1", {"note": "with"}).status == 200
    assert api.patch(path, {"meta": {"required": False}}).status == 200


def test_a_column_that_a_key_and_a_foreign_key_share_keeps_its_value(stage: Stage) -> None:
    """As databases of several tenants have them: every key begins with the tenant."""
    stage.execute(TENANTS)
    api = stage.admin
    for field, name in (("authors", "written"), ("authors_2", "edited")):
        body = {"meta": {"one_field": name}}
        assert api.patch(f"/relations/books/{field}", body).status == 200
    assert api.patch("/items/books/1,1", {"authors_2": None}).data["authors_2"] is None
    assert api.patch("/items/authors/1,1", {"written": [[1, 2]]}).data["written"] == [[1, 2]]
    books = api.get("/items/books?fields=id,authors,authors_2").data
    assert [tuple(book.values()) for book in books] == [(1, None, None), (2, [1, 1], None)]
    both = api.post("/items/books", {"id": 3, "authors": [1, 2], "authors_2": [1, 1]}).data
    assert (both["tenant"], both["author"], both["editor"]) == (1, 2, 1)
    alone = api.post("/items/books", {"tenant": 1, "id": 5, "authors": None}).data
    assert (alone["tenant"], alone["author"]) == (1, None)
    # The book lies with one tenant.
    mixed = {"id": 4, "authors": [1, 2], "authors_2": [2, 1]}
    assert api.post("/items/books", mixed).codes == ["INVALID_FOREIGN_KEY"]
    assert api.delete("/items/authors/1,2").status == 204
    assert api.get("/items/books/1,3?fields=author,editor").data == {"author": None, "editor": 1}
    assert history(api, "books")[-1] == ("update", "1,3")


def test_deleting_the_target_leaves_its_mark_in_the_history(api: Client) -> None:
    assert api.delete("/items/orders/17").status in (204, 400)
    api.delete("/items/orders_tags", [[17, "new"], [17, "sale"]])
    assert api.delete("/items/orders/17").status == 204
    assert api.get("/items/shipments/1").data["order_items"] is None
    assert ("delete", "17,2") in history(api, "order_items")
    assert history(api, "shipments") == [("update", "1")]


def test_partitioned_tables_stand_on_either_side(api: Client) -> None:
    (first, second) = api.get("/items/rows_by_month").data
    assert (first["v"], second["v"]) == ("first", "second")
    note = api.post("/items/notes", {"text": "n", "rows_by_month": [1, "2026-02-01"]}).data
    assert note["at"] == "2026-02-01"
    assert api.get("/items/notes?fields=rows_by_month.v").data == [
        {"rows_by_month": {"v": "second"}}
    ]
    assert api.patch("/items/rows_by_month/1,2026-01-01", {"v": "x"}).data["v"] == "x"
    assert api.delete("/items/rows_by_month/1,2026-01-01").status == 204


# Many-to-any, and what uses a row


@pytest.fixture(scope="module")
def marks(stage: Stage, tables: None) -> None:
    """A many-to-any relation whose column holds the texts of keys."""
    stage.execute(
        "CREATE TABLE marks (id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, "
        "kind text, thing text)"
    )
    meta = {"one_collection_field": "kind", "one_allowed_collections": ["order_items", "tags"]}
    relation = {"collection": "marks", "field": "thing", "related_collection": None, "meta": meta}
    assert stage.admin.post("/relations", relation).status == 200


@pytest.mark.usefixtures("marks")
def test_a_many_to_any_field_leads_to_such_items(api: Client) -> None:
    by_key = api.post("/items/marks", {"kind": "order_items", "thing": "17,2"}).data
    item = {"order_id": 19, "line": 6, "product": 3}
    created = api.post("/items/marks", {"kind": "order_items", "thing": item}).data
    assert (by_key["thing"], created["thing"]) == ("17,2", "19,6")
    item = {"order_id": 17, "line": 2, "amount": 8}
    assert api.post("/items/marks", {"kind": "order_items", "thing": item}).status == 200
    opened = api.get("/items/marks?fields=thing:order_items.product.name&sort=id").data
    names = [mark["thing"]["product"]["name"] for mark in opened]
    assert (names, lines(api, 17)[1]) == (["cup", "pot", "cup"], (2, "8"))
    filter = {"thing:order_items": {"line": 6}}
    assert len(api.search("/items/marks", {"filter": filter}).data) == 1
    missing = api.post("/items/marks", {"kind": "order_items", "thing": "17,3"})
    assert missing.codes == ["INVALID_FOREIGN_KEY"]


@pytest.mark.usefixtures("marks")
@pytest.mark.parametrize(
    "rule",
    [
        {"$FOLLOW(shipments,order_items)": {"note": "sent"}},
        {"$FOLLOW(marks,thing,kind)": {"id": {"_gt": 0}}},
        {"order_id": {"_eq": 17}, "$FOLLOW(shipments,order_items)": {"_some": {}}},
    ],
)
def test_what_uses_such_an_item_is_followed(stage: Stage, rule: Json) -> None:
    stage.insert("marks", {"kind": "order_items", "thing": "17,2"})
    found = stage.admin.search("/items/order_items", {"filter": rule, "fields": ["line"]})
    assert found.data == [{"line": 2}]
    ann = member(stage, may("order_items", permissions=rule))
    assert [item["line"] for item in ann.get("/items/order_items").data] == [2]
    assert ann.get("/items/order_items/17,1").status in (403, 404)
    column = stage.admin.search("/items/orders", {"filter": {"$FOLLOW(shipments,item_order)": {}}})
    assert column.codes == ["INVALID_QUERY"]


# Rights


def test_a_permission_on_such_a_field_gives_its_columns(stage: Stage) -> None:
    ann = member(
        stage,
        may("shipments", "id", "order_items", permissions={"order_items": {"_nnull": True}}),
        may("shipments", "order_items", action="update"),
        may("order_items", "line", permissions={"line": {"_lt": 10}}),
    )
    assert ann.get("/items/shipments").data == [{"id": 1, "order_items": [17, 2]}]
    assert ann.get("/items/shipments?fields=order_items.*").data == [{"order_items": {"line": 2}}]
    assert ann.get("/items/shipments?fields=item_line").status == 403
    assert ann.patch("/items/shipments/1", {"order_items": [17, 1]}).data["order_items"] == [17, 1]
    assert ann.patch("/items/shipments/1", {"item_line": 2}).status == 403
    # The names of the columns stay hidden.
    readers = (may("shipments", "id", "order_items"), may("order_items"), may("system_collections"))
    cleo = member(stage, *readers)
    fields = {one["field"]: one for one in cleo.get("/fields/shipments").data}
    assert (sorted(fields), fields["order_items"]["meta"]["columns"]) == (["id", "order_items"], [])
    assert cleo.get("/fields/shipments/order_items").data == fields["order_items"]
    grouped = cleo.get("/items/shipments?groupBy=order_items")
    assert grouped.codes == ["INVALID_QUERY"]
    assert "item_line" not in grouped.text
    hidden = member(stage, may("shipments", "id", "item_order", "item_line"))
    assert hidden.get("/items/shipments?fields=order_items").status == 403
    assert hidden.get("/items/shipments?filter[order_items][_null]=true").status == 403


def test_a_preset_sets_all_columns(stage: Stage) -> None:
    ann = member(
        stage,
        may("shipments"),
        may("shipments", "note", action="create", presets={"order_items": [17, 10]}),
    )
    created = ann.post("/items/shipments", {"note": "preset"}).data
    assert (created["item_order"], created["item_line"]) == (17, 10)
    role = {"role": None, "collection": "shipments", "action": "create"}
    refused = stage.admin.post("/permissions", {**role, "presets": {"order_items": [17]}})
    assert refused.status in (400, 422), refused


def test_rules_compare_with_such_keys(stage: Stage) -> None:
    ann = member(
        stage,
        may("shipments", permissions={"order_items": {"_in": [[17, 2]]}}),
        may("shipments", action="create", validation={"order_items": {"_eq": [17, 1]}}),
    )
    assert [item["id"] for item in ann.get("/items/shipments").data] == [1]
    assert ann.post("/items/shipments", {"order_items": [17, 1]}).status in (200, 204)
    assert ann.post("/items/shipments", {"order_items": [17, 2]}).codes == ["FAILED_VALIDATION"]
