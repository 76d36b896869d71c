"""Every field type takes and gives its extremes, and names the field of a wrong value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client import Client
from tests.things import Stage, Table, field, table

FORTY_DIGITS = "1234567890123456789.012345678901234567891"
TEXTS = [
    "",
    " ",
    "'quoted' \"twice\" `thrice`",
    "100 % _ \\ \\\\ \\n %s %(x)s $1 {0}",
    "'; DROP TABLE system_users; --",
    "👩‍👩‍👧 𝔘nicode ZWJ",
    "שלום עולם \u202e مرحبا",
    "line\nfeed\ttab\r\u0001\u007f",
    "null",
    "x" * 255,
]

# (type, what is sent, what is answered), as JSON text, so that no digit is lost on the way
SENT_AND_ANSWERED = [
    *(("text", json.dumps(text), json.dumps(text, ensure_ascii=False)) for text in TEXTS),
    *(("string", json.dumps(text), json.dumps(text, ensure_ascii=False)) for text in TEXTS),
    ("text", "12", '"12"'),
    ("integer", "2147483647", "2147483647"),
    ("integer", "-2147483648", "-2147483648"),
    ("integer", '"42"', "42"),
    ("integer", "1e3", "1000"),
    ("integer", "5.0", "5"),
    ("integer", "0", "0"),
    ("bigInteger", "9223372036854775807", "9223372036854775807"),
    ("bigInteger", "-9223372036854775808", "-9223372036854775808"),
    ("bigInteger", '"9007199254740993"', "9007199254740993"),
    ("decimal", FORTY_DIGITS, FORTY_DIGITS),
    ("decimal", f'"-{FORTY_DIGITS}"', f"-{FORTY_DIGITS}"),
    ("decimal", "1.10", "1.10"),
    ("decimal", "0.0000000000000000000000000001", "0.0000000000000000000000000001"),
    ("decimal", "1e30", "1" + "0" * 30),
    ("float", "1.7976931348623157e308", "1.7976931348623157e+308"),
    ("float", "-1.7976931348623157e308", "-1.7976931348623157e+308"),
    ("float", "5e-324", "5e-324"),
    ("float", "2.2250738585072014e-308", "2.2250738585072014e-308"),
    ("float", "0.1", "0.1"),
    ("float", "0", "0"),
    ("boolean", "true", "true"),
    ("boolean", "false", "false"),
    ("boolean", "0", "false"),
    ("date", '"0001-01-01"', '"0001-01-01"'),
    ("date", '"9999-12-31"', '"9999-12-31"'),
    ("time", '"00:00:00"', '"00:00:00"'),
    ("time", '"23:59:59.999999"', '"23:59:59.999999"'),
    ("datetime", '"0001-01-01T00:00:00"', '"0001-01-01T00:00:00"'),
    ("datetime", '"9999-12-31T23:59:59.999999"', '"9999-12-31T23:59:59.999999"'),
    ("datetime", '"2024-02-29T23:30:00-02:00"', '"2024-03-01T01:30:00"'),
    ("timestamp", '"0001-01-01T00:00:00Z"', '"0001-01-01T00:00:00.000Z"'),
    ("timestamp", '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59.999999Z"'),
    ("timestamp", '"2024-02-29T23:30:00.123456+05:30"', '"2024-02-29T18:00:00.123456Z"'),
    ("timestamp", '"2024-02-29T23:30:00"', '"2024-02-29T23:30:00.000Z"'),
    ("json", '"a string"', '"a string"'),
    ("json", '""', '""'),
    ("json", "true", "true"),
    ("json", "0", "0"),
    ("json", "[]", "[]"),
    ("json", '{"z":1,"a":{"b":[1,null,"é",{"":[]}]}}', '{"z":1,"a":{"b":[1,null,"é",{"":[]}]}}'),
    (
        "json",
        f"[{FORTY_DIGITS},12345678901234567890123]",
        f"[{FORTY_DIGITS},12345678901234567890123]",
    ),
    ("json", '"\\\\u0000 is six letters"', '"\\\\u0000 is six letters"'),
    ("csv", '["a","b c","é"]', '["a","b c","é"]'),
    ("csv", "[]", "[]"),
    ("csv", '"a,b"', '["a","b"]'),
    ("hash", '"secret"', '"**********"'),
    ("binary", '""', '""'),
    ("binary", '"AAECAwD/"', '"AAECAwD/"'),
    ("binary", json.dumps("QUJD" * 100), json.dumps("QUJD" * 100)),
    (
        "uuid",
        '"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"',
        '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"',
    ),
    ("uuid", '"a0eebc999c0b4ef8bb6d6bb9bd380a11"', '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
]
KINDS = tuple(dict.fromkeys(kind for kind, _, _ in SENT_AND_ANSWERED))

# (type, what is sent as JSON text, the code)
REFUSED = [
    ("string", "{}", "INVALID_PAYLOAD"),
    ("string", json.dumps("x" * 256), "VALUE_TOO_LONG"),
    ("text", "[]", "INVALID_PAYLOAD"),
    ("text", "true", "INVALID_PAYLOAD"),
    ("integer", "2147483648", "VALUE_OUT_OF_RANGE"),
    ("integer", "-2147483649", "VALUE_OUT_OF_RANGE"),
    ("integer", "1.5", "INVALID_PAYLOAD"),
    ("integer", '"x"', "INVALID_PAYLOAD"),
    ("integer", "true", "INVALID_PAYLOAD"),
    ("integer", '""', "INVALID_PAYLOAD"),
    ("integer", '"NaN"', "INVALID_PAYLOAD"),
    ("bigInteger", "9223372036854775808", "VALUE_OUT_OF_RANGE"),
    ("bigInteger", "1" + "0" * 400, "VALUE_OUT_OF_RANGE"),
    ("bigInteger", "1e400", "VALUE_OUT_OF_RANGE"),
    ("decimal", '"infinity"', "INVALID_PAYLOAD"),
    ("decimal", "1e200000", "VALUE_OUT_OF_RANGE"),
    ("decimal", "1e-20000", "VALUE_OUT_OF_RANGE"),
    ("float", "1e309", "VALUE_OUT_OF_RANGE"),
    ("float", "1e-400", "VALUE_OUT_OF_RANGE"),
    ("float", "[1]", "INVALID_PAYLOAD"),
    ("boolean", '"maybe"', "INVALID_PAYLOAD"),
    ("boolean", "2", "INVALID_PAYLOAD"),
    ("date", '"2023-02-29"', "INVALID_PAYLOAD"),
    ("date", '"+10000-01-01"', "INVALID_PAYLOAD"),
    ("date", "20240101", "INVALID_PAYLOAD"),
    ("time", '"25:00:00"', "INVALID_PAYLOAD"),
    ("time", '"10:00:00+02:00"', "INVALID_PAYLOAD"),
    ("datetime", '"yesterday"', "INVALID_PAYLOAD"),
    ("timestamp", '"-004714-01-01T00:00:00Z"', "VALUE_OUT_OF_RANGE"),
    ("timestamp", '"Infinity"', "INVALID_PAYLOAD"),
    ("json", "[" * 300 + "]" * 300, "INVALID_PAYLOAD"),
    ("csv", '["a,b"]', "INVALID_PAYLOAD"),
    ("csv", '["a",""]', "INVALID_PAYLOAD"),
    ("csv", '[["a"]]', "INVALID_PAYLOAD"),
    ("csv", "5", "INVALID_PAYLOAD"),
    ("hash", "{}", "INVALID_PAYLOAD"),
    ("binary", '"not base64!"', "INVALID_PAYLOAD"),
    ("binary", '"é"', "INVALID_PAYLOAD"),
    ("uuid", '"x"', "INVALID_PAYLOAD"),
    ("uuid", "5", "INVALID_PAYLOAD"),
]


@pytest.fixture(scope="module")
def values(admin: Client) -> Table:
    return table(admin, *(field(f"a_{kind}", kind) for kind in KINDS))


@pytest.mark.parametrize(("kind", "sent", "answered"), SENT_AND_ANSWERED)
def test_a_value_comes_back_as_it_should_from_create_and_from_read(
    values: Table, kind: str, sent: str, answered: str
) -> None:
    created = values.api.send(
        "POST", f"{values.path}?fields=id,a_{kind}", raw=f'{{"a_{kind}":{sent}}}'
    )
    assert created.status == 200, created.text
    key = created.data["id"]
    one = values.api.get(f"{values.path}/{key}?fields=a_{kind}")
    listed = values.read(f"fields=a_{kind}&filter[id]={key}")
    for answer in (created, one, listed):
        assert f'"a_{kind}":{answered}' in answer.text, answer


@pytest.mark.parametrize(("kind", "sent", "code"), REFUSED)
def test_a_wrong_value_is_refused_with_its_field(
    values: Table, kind: str, sent: str, code: str
) -> None:
    answer = values.api.send("POST", values.path, raw=f'{{"a_{kind}":{sent}}}')
    assert (answer.status, answer.codes) == (400, [code]), answer.text
    assert answer.errors[0]["field"] == f"a_{kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_null_is_null_for_every_type(values: Table, kind: str) -> None:
    item = values.add({f"a_{kind}": None})[0]
    assert item[f"a_{kind}"] is None
    assert values.column("id", f"filter[id]={item['id']}&filter[a_{kind}][_null]=true") == [
        item["id"]
    ]


def test_a_json_null_in_a_json_field_is_null_in_sql_and_inside_a_value_it_is_a_value(
    values: Table, stage: Stage
) -> None:
    whole, inside = values.add({"a_json": None}, {"a_json": [None]})
    assert inside["a_json"] == [None]
    count = f"SELECT count(*) FROM {values.name} WHERE a_json IS NULL AND id = {whole['id']}"
    assert stage.value(count) == 1


def test_a_text_of_almost_a_megabyte_comes_back_whole(values: Table) -> None:
    text = "é%'\\" * 150_000
    raw = json.dumps({"a_text": text}, ensure_ascii=False)
    item = values.api.send("POST", values.path, raw=raw.encode()).data
    assert values.api.get(f"{values.path}/{item['id']}").data["a_text"] == text


def test_a_decimal_keeps_to_its_precision_and_scale(admin: Client) -> None:
    prices = table(admin, field("price", "decimal", numeric_precision=5, numeric_scale=2))
    assert [
        item["price"] for item in prices.add({"price": 999.99}, {"price": "1.005"}, {"price": -5})
    ] == [
        999.99,
        1.01,
        -5.0,
    ]
    for beyond in (1000, 999.995, "-1000.00"):
        answer = prices.api.post(prices.path, {"price": beyond})
        assert (answer.codes, answer.errors[0]["field"]) == (["VALUE_OUT_OF_RANGE"], "price"), (
            beyond
        )


def test_a_concealed_value_is_masked_and_its_mask_leaves_it_alone(
    admin: Client, stage: Stage
) -> None:
    people = table(admin, field("pin", "string", special="conceal"), field("word", "hash"))
    members = people.add({"pin": "1234", "word": "w"}, {})
    assert [(item["pin"], item["word"]) for item in members] == [
        ("**********", "**********"),
        (None, None),
    ]
    before = stage.value(f"SELECT pin || word FROM {people.name} WHERE id = 1")
    people.api.patch(f"{people.path}/1", {"pin": "**********", "word": "**********"})
    assert stage.value(f"SELECT pin || word FROM {people.name} WHERE id = 1") == before
    assert before.startswith("1234$argon2id$")


EXISTING = """
CREATE TYPE "Mood's" AS ENUM ('sad', 'ok');
CREATE TABLE existing (
    id serial PRIMARY KEY, small smallint, single real, fixed char(5), binary_json jsonb, mood
    "Mood's",
    address inet, span interval, numbers integer[], endless timestamptz, nothing numeric, moment
    timetz
)
"""


def test_columns_of_types_that_the_service_cannot_make_are_read_and_written(stage: Stage) -> None:
    stage.execute(EXISTING)
    items = Table(stage.admin, "existing")
    sent = {
        "small": 32767,
        "single": 1.1,
        "fixed": "ab",
        "binary_json": {"b": 1, "a": 2},
        "mood": "sad",
    }
    sent |= {"address": "10.0.0.1/8", "span": "1 day", "numbers": [1, 2], "moment": "10:00:00+02"}
    item = items.add(sent)[0]
    assert item["small"] == 32767
    assert item["single"] == 1.1
    assert item["binary_json"] == {"a": 2, "b": 1}
    assert [item[name] for name in ("mood", "address", "span", "numbers")] == [
        "sad",
        "10.0.0.1/8",
        "P1D",
        [1, 2],
    ]
    assert items.column("id", "filter[mood]=sad&filter[address][_starts_with]=10&sort=mood") == [1]
    assert items.api.post(items.path, {"mood": "glad"}).status == 400
    for name, value in (("small", 32768), ("single", 1e39)):
        answer = items.api.post(items.path, {name: value})
        assert (answer.codes, answer.errors[0]["field"]) == (["VALUE_OUT_OF_RANGE"], name), answer


def test_values_that_json_does_not_have_read_as_texts(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE strange (id serial PRIMARY KEY, f float8, n numeric, d date, t timestamptz);"
        "INSERT INTO strange (f, n, d, t) VALUES ('NaN', 'NaN', 'infinity', '-infinity'), "
        "('-Infinity', 'Infinity', "
        "'0044-03-15 BC', '-infinity')"
    )
    first, second = Table(stage.admin, "strange").get().data
    assert (first["f"], first["n"], first["d"], first["t"]) == (
        "NaN",
        "NaN",
        "infinity",
        "-infinity",
    )
    assert (second["f"], second["n"], second["d"]) == ("-Infinity", "Infinity", "-000043-03-15")
    assert Table(stage.admin, "strange").column("d_year", "fields=year(d)&sort=year(d)") == [
        -44,
        None,
    ]
    assert Table(stage.admin, "strange").read("aggregate[sum]=n&aggregate[max]=n,f").data == [
        {"sum": {"n": "NaN"}, "max": {"n": "NaN", "f": "NaN"}}
    ]


KEYS: list[tuple[str, Any, Any]] = [
    ("numeric(10,2)", 1.5, 1.5),
    ("timestamptz", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.000Z"),
    ("date", "2024-01-01", "2024-01-01"),
    ("double precision", 0.5, 0.5),
    ("inet", "10.0.0.1", "10.0.0.1/32"),
    ("varchar(40)", 'it\'s 5 % "of" 👩', 'it\'s 5 % "of" 👩'),
    ("char(5)", "ab", "ab"),
    ("boolean", True, True),
    ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("kind", "sent", "answered"), KEYS)
def test_a_key_of_any_type_is_created_changed_and_deleted(
    stage: Stage, kind: str, sent: Any, answered: Any
) -> None:
    items = Table(stage.admin, f"keyed_by_{kind.partition('(')[0].replace(' ', '_')}")
    stage.execute(f"CREATE TABLE {items.name} (k {kind} PRIMARY KEY, v text)")
    key = items.add({"k": sent, "v": "a"})[0]["k"]
    assert items.api.patch(items.path, [{"k": sent, "v": "b"}]).data[0]["v"] == "b"
    assert items.api.patch(items.path, {"keys": [sent], "data": {}}).data[0]["v"] == "b"
    assert (
        items.api.patch(items.path, {"query": {"filter": {"v": "b"}}, "data": {"v": "c"}}).data[0][
            "v"
        ]
        == "c"
    )
    assert items.column("v") == ["c"]
    assert key == answered
    assert items.api.delete(items.path, [sent]).status == 204
    assert items.column("v") == []


@pytest.mark.quick(12)
@pytest.mark.parametrize(
    "written", ["1_000", "１２", "٣", "0x10", "1e", "+", "1,5", "infinity", "nan", "1 2", ""]
)
@pytest.mark.parametrize("type_name", ["integer", "bigInteger", "float", "decimal"])
def test_a_text_is_a_number_only_when_it_is_written_as_one(
    stage: Stage, type_name: str, written: str
) -> None:
    things = stage.empty_table(field("n", type_name))
    assert stage.admin.post(things.path, {"n": written}).codes == ["INVALID_PAYLOAD"]
    assert things.add({"n": " +12.0e1 "})[0]["n"] == 120
