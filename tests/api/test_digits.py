"""A number has at most a thousand digits, wherever it comes in."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.client import Answer
from tests.things import Stage, Table, field, filled_things

WRITTEN = ("1e131071", "1e-16383", "9" * 1_001, "0e131071", "1e99999999999999999999")
REASON = "at most 1000 digits, its exponent written out"


things = filled_things(
    [
        field("price", "decimal"),
        field("data", "json"),
        field("float", "float"),
        field("tags", "csv"),
    ],
    [{"price": 1}],
)


def refused(answer: Answer, **location: object) -> None:
    assert (answer.status, answer.codes) == (400, ["VALUE_OUT_OF_RANGE"])
    (error,) = answer.errors
    assert REASON in error["message"]
    assert {name: error.get(name) for name in location} == location


def value_of(written: str) -> str:
    return written if len(written) <= 200 else written[:200] + "…"


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize(
    ("body", "location"),
    [
        ('{"price": %s}', {"field": "price", "path": ["price"]}),
        ('{"price": "%s"}', {"field": "price", "path": ["price"]}),
        ('{"data": %s}', {"field": "data", "path": ["data"]}),
        ('{"data": {"a": [1, %s]}}', {"field": "data", "path": ["data", "a", 1]}),
        ('[{"price": 1}, {"price": %s}]', {"index": 1, "field": "price"}),
        ('{"float": %s}', {"field": "float"}),
        ('{"tags": [%s]}', {"field": "tags"}),
        ('{"name": 1, "unknown": %s}', {"field": "unknown"}),
    ],
)
def test_in_a_body(things: Table, written: str, body: str, location: dict[str, object]) -> None:
    answer = things.api.send("POST", things.path, raw=body % written)
    refused(answer, value=value_of(written), **location)


def test_in_a_change_and_in_a_batch(things: Table) -> None:
    refused(
        things.api.send("PATCH", f"{things.path}/1", raw='{"price": "1e131071"}'), field="price"
    )
    operation = {"method": "create", "collection": things.name, "data": {"price": "1e131071"}}
    body = {"operations": [operation]}
    refused(things.api.post("/batch", body), field="price", operation=0)
    raw = json.dumps(body).replace('"1e131071"', "1e131071")
    refused(things.api.send("POST", "/batch", raw=raw), path=["operations", 0, "data", "price"])


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize(
    "query",
    [
        "filter[price][_gt]=%s",
        "filter[price]=%s",
        "filter[price][_in]=1,%s",
        "filter[price][_between]=1,%s",
        "filter[float][_in][]=%s",
        'filter={"price":{"_gt":%s}}',
        'filter={"price":{"_in":[1,"%s"]}}',
        'deep={"price":{"_limit":%s}}',
    ],
)
def test_in_a_query_string(things: Table, written: str, query: str) -> None:
    refused(things.read(quote(query % written, safe="=&")), value=value_of(written))


def test_in_the_body_of_a_search(things: Table) -> None:
    raw = '{"query": {"filter": {"price": {"_gt": 1e131071}}}}'
    refused(
        things.api.send("SEARCH", things.path, raw=raw), path=["query", "filter", "price", "_gt"]
    )
    refused(
        things.api.search(things.path, {"filter": {"price": {"_gt": "1e131071"}}}), value="1e131071"
    )


def test_in_the_default_of_a_column(things: Table) -> None:
    for written in ('"1e131071"', "1e131071"):
        change = f'{{"schema": {{"default_value": {written}}}}}'
        body = f'{{"field": "other", "type": "decimal", {change[1:]}'
        refused(things.api.send("POST", f"/fields/{things.name}", raw=body), value="1e131071")
        refused(
            things.api.send("PATCH", f"/fields/{things.name}/price", raw=change), value="1e131071"
        )


def test_in_a_rule_of_a_permission_and_its_presets(things: Table) -> None:
    rule = {"price": {"_gt": "1e131071"}}
    permission = {"collection": things.name, "action": "read", "fields": ["*"], "permissions": rule}
    assert things.api.post("/permissions", permission).status in (400, 422)
    preset = {
        "collection": things.name,
        "action": "create",
        "fields": ["*"],
        "presets": {"price": "1e131071"},
    }
    assert things.api.post("/permissions", preset).status in (400, 422)


def test_in_a_validation_of_a_field(things: Table) -> None:
    body = '{"meta": {"validation": {"price": {"_gt": 1e131071}}}}'
    refused(things.api.send("PATCH", f"/fields/{things.name}/price", raw=body), field="meta")


@pytest.mark.parametrize(
    ("kind", "file", "location"),
    [
        ("text/csv", "price,data\r\n1,\r\n%s,\r\n", {"line": 3, "field": "price"}),
        (
            "text/csv",
            'price,data\r\n1,\r\n,"[1, %s]"\r\n',
            {"line": 3, "field": "data", "path": ["data", 1]},
        ),
        ("application/json", '[{"price": 1},\n{"price": %s}\n]', {"line": 2, "field": "price"}),
        ("application/json", '[{"price": 1},\n{"price": "%s"}\n]', {"line": 2, "field": "price"}),
        (
            "application/x-ndjson",
            '{"price": 1}\n{"data": [%s]}\n',
            {"line": 2, "field": "data", "path": ["data", 0]},
        ),
    ],
)
def test_in_an_import(things: Table, kind: str, file: str, location: dict[str, object]) -> None:
    raw = file % "1e131071"
    answer = things.api.send(
        "POST", f"/utils/import/{things.name}", raw=raw, **{"Content-Type": kind}
    )
    refused(answer, value="1e131071", **location)


def test_a_number_of_a_thousand_digits_comes_back(things: Table) -> None:
    digits = "9" * 1_000
    answer = things.api.send("POST", things.path, raw=f'{{"price": {digits}, "data": [1e-1000]}}')
    assert answer.status == 200, answer.text
    assert f'"price":{digits}' in answer.text


def test_what_the_database_holds_already_is_still_read_and_restored(
    stage: Stage, things: Table
) -> None:
    key = things.add({"price": 2})[0]["id"]
    stage.execute(f"UPDATE {things.name} SET price = '1e2000', data = '[1e2000]' WHERE id = {key}")
    answer = things.read(f"filter[id]={key}")
    assert answer.status == 200
    assert "[1e2000]" in answer.text


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("numrange", "[1,1e131071)"),
        ("numrange", "[1, -1.5E+131071 ]"),
        ("numrange", r"[1,1\e131071)"),
        ("numrange", '[1,1"e"131071)'),
        ("nummultirange", "{[1e-16383,2)}"),
        ("numrange[]", ["[1,2)", "[1,1e131071)"]),
        ("jsonpath", "$.a == 1e131071"),
        ("jsonpath", "1-1e131071-1"),
        ("record_of_digits", "(1e131071,x)"),
        ("record_of_digits[]", '{"(1e131071,x)"}'),
    ],
)
def test_in_the_text_of_a_type_of_the_databases_own(
    stage: Stage, things: Table, kind: str, written: object
) -> None:
    stage.execute("DROP TABLE IF EXISTS of_digits; DROP TYPE IF EXISTS record_of_digits;")
    stage.execute("CREATE TYPE record_of_digits AS (a numeric, b text)")
    stage.execute(f"CREATE TABLE of_digits (id serial PRIMARY KEY, strange {kind})")
    refused(
        things.api.post("/items/of_digits", {"strange": written}), field="strange", value=written
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("numrange", "[1,1e999]"),
        ("bit varying", "10" * 600),
        ("tsvector", "'123e4567-123e-4567-a716-1e6655440000'"),
        ("tsvector", "'a1e131071'"),
        ("int4range", "[1,5)"),
    ],
)
def test_other_texts_of_such_types_are_taken(
    stage: Stage, things: Table, kind: str, written: str
) -> None:
    stage.execute("DROP TABLE IF EXISTS of_words")
    stage.execute(f"CREATE TABLE of_words (id serial PRIMARY KEY, strange {kind})")
    answer = things.api.post("/items/of_words", {"strange": written})
    assert answer.status == 200, answer.text


def test_settings_of_fields_keep_all_digits(things: Table) -> None:
    digits = "12345678901234567890123.5"
    for number, options in enumerate(
        (f'{{"least": {digits}}}', '{"least": 1e999}', '{"least": [1e-999]}')
    ):
        body = f'{{"field": "other_{number}", "type": "integer", "meta": {{"options": {options}}}}}'
        answer = things.api.send("POST", f"/fields/{things.name}", raw=body)
        assert answer.status == 200, answer.text
        assert options.replace(" ", "").upper() in answer.text.replace("E+", "E").upper(), answer
    rule = f'{{"meta": {{"validation": {{"price": {{"_lt": {digits}}}}}}}}}'
    assert things.api.send("PATCH", f"/fields/{things.name}/other_0", raw=rule).status == 200
    assert things.api.send("POST", things.path, raw=f'{{"price": {digits[:-1]}4}}').status == 200
    assert things.api.send("POST", things.path, raw=f'{{"price": {digits}}}').status == 422
    assert things.api.send("DELETE", f"/fields/{things.name}/other_0").status == 204
