"""GET /items/{collection}?export=…: lists as files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from cms.config import Config
from cms.extensions import OWN
from cms.items.read.prepare import ReadRequest
from cms.items.transfer.export import export
from cms.store.identity import Identity
from cms.store.store import Store
from tests.client import Client
from tests.memory import resident_bytes
from tests.things import Stage, Table, field, filled_things, table

things = filled_things(
    [field("name", "string"), field("price", "decimal"), field("data", "json")],
    [
        {"name": 'a,"b"\n', "price": "1.50", "data": {"x": [1, 2]}},
        {"name": "=1+1"},
        {"name": "-5", "price": -5},
    ],
)


def read(things: Table, form: str) -> str:
    answer = things.api.get(f"{things.path}?fields=name,price,data&export={form}")
    assert answer.status == 200
    assert answer.headers["content-disposition"].endswith(f".{form}")
    return answer.text


def test_csv_has_a_header_and_neutralises_what_a_spreadsheet_would_run(things: Table) -> None:
    assert list(csv.reader(io.StringIO(read(things, "csv"), newline=""))) == [
        ["name", "price", "data"],
        ['a,"b"\n', "1.50", '{"x":[1,2]}'],
        ["'=1+1", "", ""],
        ["'-5", "-5", ""],
    ]


def test_json_and_jsonl_hold_the_items_as_a_read_shows_them(things: Table) -> None:
    items = things.api.get(f"{things.path}?fields=name,price,data").data
    assert json.loads(read(things, "json")) == items
    assert [json.loads(line) for line in read(things, "jsonl").splitlines()] == items


def test_yaml_and_xml_can_be_read_back(things: Table) -> None:
    lines = read(things, "yaml").splitlines()
    assert lines[0] == '- "name": "a,\\"b\\"\\n"'
    assert lines[1] == '  "price": 1.50'
    root = ElementTree.fromstring(read(things, "xml"))
    assert [element.text for element in root.iter("field") if element.get("name") == "name"] == [
        'a,"b"\n',
        "=1+1",
        "-5",
    ]


ODD = (
    "a\rb\r\nc",
    "x\x7fy",
    "x\x85y\x9f",
    "x\u2028y\u2029",
    "\ufeffx",
    "x\uffffy\ufffe",
    "]]>&<",
    "\x01",
    "😀",
    "\t",
)


def test_letters_that_a_reader_would_not_take_do_not_spoil_the_file(admin: Client) -> None:
    odd = table(admin, field("text", "text"), field("data", "json"))
    odd.add(*({"text": text, "data": [text]} for text in ODD))
    lines = odd.read("fields=text,data&export=yaml").text.split("\n")[:-1]
    assert [json.loads(line.partition(": ")[2]) for line in lines] == [
        value for text in ODD for value in (text, [text])
    ]
    assert not set("\x7f\x85\x9f\u2028\u2029\ufeff\uffff\ufffe") & set("".join(lines))
    root = ElementTree.fromstring(odd.read("fields=text&export=xml").text)
    expected_texts = [
        text.replace("\uffff", "\ufffd").replace("\ufffe", "\ufffd").replace("\x01", "\ufffd")
        for text in ODD
    ]
    assert [element.text for element in root.iter("field")] == expected_texts


@pytest.mark.parametrize("sign", ["＝", "＋", "－", "＠"])
def test_letters_of_full_width_begin_a_formula_too(admin: Client, sign: str) -> None:
    odd = table(admin, field("text", "text"))
    odd.add({"text": f"{sign}1"}, {"text": f"1{sign}"})
    assert odd.read("fields=text&export=csv").text == f"text\r\n'{sign}1\r\n1{sign}\r\n"


def test_an_empty_list_is_a_whole_file_in_every_format(admin: Client) -> None:
    empty = table(admin, field("name", "string"))
    texts = {
        form: admin.get(f"{empty.path}?export={form}").text
        for form in ("csv", "json", "jsonl", "xml", "yaml")
    }
    assert texts["csv"] == "id,name\r\n"
    assert json.loads(texts["json"]) == []
    assert texts["jsonl"] == ""
    assert texts["yaml"] == "[]\n"
    assert list(ElementTree.fromstring(texts["xml"])) == []


@pytest.mark.parametrize("path", ["/items/{}", "/users"])
def test_the_body_of_a_search_can_ask_for_a_file(things: Table, path: str) -> None:
    path = path.format(things.name)
    query = {"fields": ["id"], "limit": -1, "export": "csv"}
    answer = things.api.search(path, query)
    assert answer.text == things.api.get(f"{path}?fields=id&export=csv").text
    assert answer.headers["content-disposition"].endswith(".csv")
    assert things.api.search(path, {**query, "export": "pdf"}).codes == ["INVALID_QUERY"]
    assert len(things.api.search(path, {**query, "export": None}).data) > 0


def test_an_unknown_format_is_refused(things: Table) -> None:
    answer = things.api.get(f"{things.path}?export=pdf")
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


def test_an_unknown_format_hides_nothing_else_that_is_wrong(
    things: Table, anonymous: Client
) -> None:
    wrong = "export=pdf&limit=many&fields=nothing"
    errors = things.api.get(f"{things.path}?{wrong}").errors
    assert [error.get("parameter") or error.get("field") for error in errors] == [
        "export",
        "limit",
        "nothing",
    ]
    refused = anonymous.get(f"{things.path}?export=pdf")
    assert (refused.status, refused.codes) == (403, ["FORBIDDEN"])


def test_what_may_not_be_read_is_not_exported(things: Table, anonymous: Client) -> None:
    answer = anonymous.get(f"{things.path}?export=csv")
    assert (answer.status, answer.codes) == (403, ["FORBIDDEN"])


def test_a_nested_list_stands_on_one_line_of_jsonl(admin: Client, stage: Stage) -> None:
    parent = table(admin, field("name", "string"))
    child = table(admin, field("parent", "integer"))
    body = {
        "collection": child.name,
        "field": "parent",
        "related_collection": parent.name,
        "meta": {"one_field": "kids"},
    }
    assert admin.post("/relations", body).status == 200
    parent.add({"name": "p"})
    child.add({"parent": 1}, {"parent": 1})
    text = admin.get(f"{parent.path}?fields=kids.id&export=jsonl").text
    assert text.count("\n") == 1
    assert json.loads(text) == {"kids": [{"id": 1}, {"id": 2}]}


@pytest.mark.release
def test_a_large_export_takes_no_more_memory_than_a_batch(stage: Stage, settings: Config) -> None:
    stage.execute(
        "CREATE TABLE many AS SELECT n AS id, repeat('x', 150) AS name FROM generate_series(1, "
        "1000000) AS n;"
        "ALTER TABLE many ADD PRIMARY KEY (id)"
    )
    store = Store(replace(settings, database_url=stage.dsn), hooks=OWN.store_hooks())
    identity = Identity(user=stage.admin.get("/users/me").data["id"])
    before = resident_bytes()
    exported = export(store, identity, ReadRequest("many", "limit=-1"), file_format="jsonl")
    lines = size = peak = 0
    for chunk in exported.chunks:
        lines += chunk.count(b"\n")
        size += len(chunk)
        peak = max(peak, resident_bytes())
    store.close()
    assert lines == 1_000_000
    assert size > 170_000_000
    assert peak - before < 20_000_000
