"""A database that others have made: every type of column, and every
kind of table, is served as it is.
"""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st

from tests.client import Answer
from tests.examples import example_count
from tests.file_imports import post_file
from tests.things import Stage, Table

_numbers = itertools.count(1)

ENUM = "CREATE TYPE mood AS ENUM ('so-so', 'good', 'Very, \"very\" bad')"
TYPES = f"""
    {ENUM};
    CREATE TYPE place AS (street text, number integer);
    CREATE DOMAIN short AS varchar(5) CHECK (VALUE <> 'never');
    CREATE DOMAIN small AS integer NOT NULL DEFAULT 3 CHECK (VALUE < 10);
    CREATE DOMAIN smaller AS small CHECK (VALUE < 5);
    CREATE DOMAIN mood_of_day AS mood;
    CREATE DOMAIN words AS text[];
"""


@pytest.fixture(scope="module", autouse=True)
def types(stage: Stage) -> None:
    stage.execute(TYPES)


def existing_table(
    stage: Stage, columns: str, *, before: str = "", name: str | None = None
) -> Table:
    """Make a table elsewhere."""
    name = name or f"elsewhere_{next(_numbers)}"
    quoted = name.replace('"', '""')
    stage.execute(f'{before}; CREATE TABLE "{quoted}" ({columns})')
    return Table(stage.admin, name)


def types_of(table: Table) -> dict[str, str]:
    return {
        record["field"]: record["type"] for record in table.api.get(f"/fields/{table.name}").data
    }


LISTS: list[tuple[str, list[Any]]] = [
    (
        "text[]",
        [
            ["a", 'b"c\\d', "e,f", "{}", "NULL", "", "ü 'x'", " "],
            [],
            [None, "x"],
            [["a", "b"], ["c", "d"]],
        ],
    ),
    ("varchar(5)[]", [["abcde"]]),
    ("integer[]", [[1, -2, 2**31 - 1, None], [], [[1, 2], [3, 4]]]),
    ("bigint[]", [[2**63 - 1, -(2**63)]]),
    ("smallint[3]", [[1, 2]]),
    ("numeric(20,3)[]", [[12345678901234567.125, 0.5]]),
    ("double precision[]", [[0.1, -1e300]]),
    ("boolean[]", [[True, False, None]]),
    ("uuid[]", [["6f1d2a3c-0000-4000-8000-000000000001"]]),
    ("date[]", [["2024-02-29"]]),
    ("timestamp[]", [["2024-02-29T12:30:00"]]),
    ("inet[]", [["10.0.0.1", "10.0.0.0/8", "::1"]]),
    ("interval[]", [["P1DT2H"]]),
    ("int4range[]", [["[1,5)", "empty"]]),
    ("mood[]", [["good", 'Very, "very" bad']]),
    ("short[]", [["ab"]]),
    ("words", [["a", "b c"]]),
]
TEXTS: list[tuple[str, list[Any]]] = [
    ("mood", ["so-so", "good", 'Very, "very" bad']),
    ("mood_of_day", ["good"]),
    ("interval", ["P1Y2M3DT4H5M6.5S", "PT-5M", "P1D"]),
    ("money", ["$1,234.50", "-$0.01"]),
    ("inet", ["10.0.0.1", "10.1.2.3/8", "::1", "fe80::/10"]),
    ("cidr", ["10.0.0.0/8", "::/0"]),
    ("macaddr", ["08:00:2b:01:02:03"]),
    ("macaddr8", ["08:00:2b:01:02:03:04:05"]),
    ("int4range", ["[1,5)", "empty", "(,)"]),
    ("tstzrange", ['["2024-01-01 00:00:00+00","2024-02-01 00:00:00+00")']),
    ("int4multirange", ["{[1,3),[5,8)}", "{}"]),
    ("bit(3)", ["101"]),
    ("bit varying", ["10101"]),
    ("timetz", ["12:30:00+02"]),
    ("tsvector", ["'a' 'b'"]),
    ("point", ["(1,2)"]),
    ("place", ['("Long street",5)']),
    ("place[]", ['{"(a,1)","(b,2)"}']),
    ("jsonb[]", ['{"{\\"a\\": 1}"}']),
    ("bytea[]", ['{"\\\\x00ff"}']),
    ("box[]", ["{(1,1),(0,0);(2,2),(1,1)}"]),
    ("name", ["a name"]),
    ('"char"', ["x"]),
    ("pg_lsn", ["16/B374D848"]),
    ("regclass", ["pg_class", "-"]),
    ("short", ["abcde", ""]),
    ("character varying", ["a", ""]),
]
OTHERS: list[tuple[str, list[Any]]] = [
    ("bytea", ["AP8=", ""]),
    ("smaller", [4, -1]),
    ("real", [0.5]),
    ("numeric", [1234567.5]),
    ("jsonb", [{"a": [1, None]}, [], "text"]),
]


@pytest.fixture(scope="module")
def of_each_type(stage: Stage, types: None) -> dict[str, tuple[Table, Table]]:
    """Two tables for each type of the lists, `id` and `v`: to make all at once is much quicker."""
    tables = {}
    statements = []
    for number, (kind, _) in enumerate([*LISTS, *TEXTS, *OTHERS]):
        names = f"of_type_{number}", f"copy_of_type_{number}"
        statements += [f"CREATE TABLE {name} (id integer PRIMARY KEY, v {kind})" for name in names]
        tables[kind] = Table(stage.admin, names[0]), Table(stage.admin, names[1])
    stage.execute(";".join(statements))
    return tables


@pytest.mark.release
@pytest.mark.parametrize(("kind", "values"), [*LISTS, *TEXTS, *OTHERS])
def test_a_value_of_any_type_is_read_as_it_was_written(
    of_each_type: dict[str, tuple[Table, Table]], kind: str, values: list[Any]
) -> None:
    """In an answer, by a filter, and out of an export and in again."""
    things, copy = of_each_type[kind]
    values_by_key = dict(enumerate([*values, None] if kind != "smaller" else values, start=1))
    assert {
        item["id"]: item["v"]
        for item in things.add(*({"id": n, "v": v} for n, v in values_by_key.items()))
    } == values_by_key
    for number, value in values_by_key.items():
        assert things.api.patch(f"{things.path}/{number}", {"v": value}).data == {
            "id": number,
            "v": value,
        }
    assert dict(enumerate(things.column("v", "sort=id"), start=1)) == values_by_key
    if (kind, values) in TEXTS:
        for number, value in values_by_key.items():
            answer = things.api.search(
                things.path, {"filter": {"v": {"_eq": value}}, "fields": ["id"]}
            )
            assert answer.data == [{"id": number}], value
    empty = things.column("id", "filter[v][_null]=true")
    assert empty == [number for number, value in values_by_key.items() if value is None]
    for form in ("json", "csv", "jsonl"):
        content = things.get(export=form).content
        copy.api.delete(copy.path, {"query": {"limit": -1}})
        assert copy.column("id") == [], form
        assert post_file(copy, content, form=form).status == 200, content
        assert copy.get(sort="id").data == things.get(sort="id").data or (
            form == "csv" and "" in values
        )


def test_lists_are_json_with_what_fits_them(stage: Stage) -> None:
    things = existing_table(
        stage, "id serial PRIMARY KEY, tags text[] DEFAULT '{}', sizes integer[]"
    )
    assert types_of(things) == {"id": "integer", "tags": "json", "sizes": "json"}
    schema = things.api.get(f"/fields/{things.name}/tags").data["schema"]
    assert (schema["data_type"], schema["default_value"]) == ("text[]", [])
    things.add({"tags": ["a", "b"]}, {}, {"tags": None})
    assert things.column("id", "filter[tags][_empty]=true") == [2, 3]
    assert things.column("id", "filter[tags][_nempty]=true") == [1]
    assert things.column("id", "filter[count(tags)][_gt]=1") == [1]
    assert things.column("tags_count", "fields=count(tags)&sort=id") == [2, 0, None]
    assert things.column("id", "filter[tags][_contains]=a") == [1]
    assert things.column("id", "filter[tags][_ncontains]=a") == [2]
    assert things.column("id", "filter[tags][_contains]=%25") == []
    things.api.patch(f"{things.path}/2", {"sizes": [5, 6]})
    assert things.column("id", "filter[sizes][_contains]=5") == [2]
    assert things.read("filter[tags][_starts_with]=a").codes == ["INVALID_QUERY"]
    rule = {"meta": {"validation": {"_contains": "a"}}}
    assert things.api.patch(f"/fields/{things.name}/tags", rule).status == 200
    assert things.api.post(things.path, {"tags": ["ab"]}).codes == ["FAILED_VALIDATION"]
    assert things.add({"tags": ["b", "a"]})
    assert things.read("filter[tags][_eq]=a").codes == ["INVALID_QUERY"]
    revisions = things.api.get(f"/revisions?filter[collection]={things.name}&sort=id").data
    assert revisions[0]["data"] == {"id": 1, "tags": ["a", "b"], "sizes": None}


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("integer[]", ["x"], "INVALID_PAYLOAD"),
        ("integer[]", [1.5], "INVALID_PAYLOAD"),
        ("integer[]", "{1,2}", "INVALID_PAYLOAD"),
        ("integer[]", {"a": 1}, "INVALID_PAYLOAD"),
        ("integer[]", [2**31], "VALUE_OUT_OF_RANGE"),
        ("integer[]", [[]], "INVALID_PAYLOAD"),
        ("text[]", [{}], "INVALID_PAYLOAD"),
        ("mood", "furious", "INVALID_PAYLOAD"),
        ("mood", 5, "INVALID_PAYLOAD"),
        ("mood_of_day", "furious", "INVALID_PAYLOAD"),
        ("short", "abcdef", "VALUE_TOO_LONG"),
        ("bytea", "no base64", "INVALID_PAYLOAD"),
    ],
)
def test_what_a_type_does_not_take_is_refused_with_its_field(
    stage: Stage, kind: str, value: Any, code: str
) -> None:
    things = existing_table(stage, f"id serial PRIMARY KEY, v {kind}")
    answer = things.api.post(things.path, {"v": value})
    assert (answer.status, answer.codes, answer.errors[0]["field"]) == (400, [code], "v")


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer[]", [[1, 2], [3]]),
        ("interval", "soon"),
        ("money", "much"),
        ("inet", "10.0.0.256"),
        ("cidr", "10.0.0.1/8"),
        ("macaddr", "x"),
        ("int4range", "[5,1]"),
        ("int4multirange", "[1,2)"),
        ("bit(3)", "1"),
        ("bit varying(3)", "10101"),
        ("place", "x"),
        ("short", "never"),
        ("smaller", 7),
        ("mood[]", ["furious"]),
        ("varchar(2)[]", ["abc"]),
        ("numeric(3,1)[]", [1000]),
        ("pg_lsn", "x"),
        ("tsvector", "'"),
        ("tsquery", "&"),
        ("jsonpath", "$$$"),
        ("regclass", "nowhere"),
        ("regproc", "nothing"),
        ("regrole", "nobody"),
        ("regtype", "no_type"),
        ("regconfig", "none"),
        ("regnamespace", "none"),
    ],
)
def test_what_only_the_database_refuses_is_no_fault_of_the_service(
    stage: Stage, kind: str, value: Any
) -> None:
    things = existing_table(stage, f"id serial PRIMARY KEY, v {kind}")
    assert things.api.post(things.path, {"v": value}).status == 400
    assert things.api.post(things.path, [{"v": value}, {"v": value}]).status == 400
    assert things.get().data == []


def test_an_enum_offers_its_values(stage: Stage) -> None:
    things = existing_table(stage, "id serial PRIMARY KEY, v mood DEFAULT 'good'")
    values = ["so-so", "good", 'Very, "very" bad']
    record = things.api.get(f"/fields/{things.name}/v").data
    assert (record["type"], record["schema"]["data_type"], record["schema"]["default_value"]) == (
        "string",
        "mood",
        "good",
    )
    assert record["meta"]["options"]["choices"] == [
        {"text": value, "value": value} for value in values
    ]
    assert things.add({}) == [{"id": 1, "v": "good"}]
    assert things.column("v", "filter[v][_contains]=oo&search=good&sort=v&groupBy=v") == ["good"]
    own = {"options": {"choices": [{"text": "Fine", "value": "good"}], "icon": "star"}}
    changed = things.api.patch(f"/fields/{things.name}/v", {"meta": own}).data
    assert changed["meta"]["options"] == own["options"]
    changed = things.api.patch(
        f"/fields/{things.name}/v", {"meta": {"options": {"icon": "star"}}}
    ).data
    assert (changed["meta"]["options"]["icon"], len(changed["meta"]["options"]["choices"])) == (
        "star",
        3,
    )
    stage.execute("ALTER TYPE mood ADD VALUE 'new'")
    assert things.add({"v": "new"}) == [{"id": 2, "v": "new"}]
    assert (
        things.api.patch(
            f"/fields/{things.name}/v", {"schema": {"default_value": "furious"}}
        ).status
        == 400
    )
    assert (
        things.api.patch(f"/fields/{things.name}/v", {"schema": {"default_value": "new"}}).status
        == 200
    )
    assert things.api.patch(f"/fields/{things.name}/v", {"schema": {"max_length": 9}}).status == 400
    assert (
        things.api.patch(f"/fields/{things.name}/v", {"type": "text"}).data["schema"]["data_type"]
        == "text"
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kind",
    [
        "mood", "interval", "inet", "macaddr", "int4range", "short", "date", "numeric", "time",
    ],
)  # fmt: skip
def test_a_key_of_any_type_names_its_item(stage: Stage, kind: str) -> None:
    values = {
        "mood": "good", "interval": "P1D", "inet": "10.0.0.1/32", "macaddr": "08:00:2b:01:02:03",
        "int4range": "[1,5)", "short": "a/b", "date": "2024-01-01", "numeric": 1.5,
        "time": "02:03:04",
    }  # fmt: skip
    key = values[kind]
    things = existing_table(stage, f"id {kind} PRIMARY KEY, name text")
    others = existing_table(
        stage, f'id serial PRIMARY KEY, thing {kind} REFERENCES "{things.name}"'
    )
    assert things.add({"id": key, "name": "a"}) == [{"id": key, "name": "a"}]
    path = f"{things.path}/{quote(str(key), safe='')}"
    assert things.api.get(path).data["name"] == "a"
    assert things.api.patch(path, {"name": "b"}).data == {"id": key, "name": "b"}
    assert things.api.patch(things.path, {"keys": [key], "data": {"name": "c"}}).data == [
        {"id": key, "name": "c"}
    ]
    assert things.api.patch(things.path, [{"id": key, "name": "d"}]).data == [
        {"id": key, "name": "d"}
    ]
    (other,) = others.add({"thing": key})
    assert other["thing"] == key
    nested = {"thing": {"id": key, "name": "e"}}
    assert others.api.patch(f"{others.path}/{other['id']}?fields=thing.*", nested).data == {
        "thing": nested["thing"]
    }
    assert others.column("thing", "filter[thing][name]=e") == [key]
    assert things.api.get(f"{things.path}/nothing").status in (400, 404)
    assert others.api.delete(f"{others.path}/{other['id']}").status == 204
    assert things.api.delete(path).status == 204


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("numeric(6,2)", 1.5),
        ("timestamptz", "2024-01-01T02:03:04.500Z"),
        ("timestamp", "2024-01-01T02:03:04"),
    ],
)
def test_the_revisions_of_an_item_are_found_by_its_key_as_answers_show_it(
    stage: Stage, kind: str, key: object
) -> None:
    things = existing_table(stage, f"id {kind} PRIMARY KEY, name text")
    things.add({"id": key, "name": "a"}, {"id": "2020-01-01" if "time" in kind else "7"})
    path = f"{things.path}/{quote(str(key), safe='')}"
    assert things.api.patch(path, {"name": "b"}).status == 200
    first, second = things.api.get(f"{path}/revisions").data
    assert [first["data"]["name"], second["data"]["name"]] == ["a", "b"]
    assert things.api.get(f"{path}/revisions/{second['id']}").data == second
    assert things.api.delete(path).status == 204
    path = f"{things.path}/{quote(second['item'], safe='')}"
    assert len(things.api.get(f"{path}/revisions").data) == 3


SMALL = st.integers(-(2**31), 2**31 - 1)
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@trying(
    max_examples=example_count(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.none() | WORDS, max_size=5), st.lists(st.none() | SMALL, max_size=5))
def test_every_list_comes_back(
    stage: Stage, words: list[str | None], numbers: list[int | None]
) -> None:
    if "lists" not in {record["collection"] for record in stage.admin.get("/collections").data}:
        existing_table(
            stage, "id serial PRIMARY KEY, words text[], numbers integer[]", name="lists"
        )
    lists = Table(stage.admin, "lists")
    (created,) = lists.add({"words": words, "numbers": numbers})
    assert (created["words"], created["numbers"]) == (words, numbers)
    assert lists.api.get(f"{lists.path}/{created['id']}").data == created


ODD = [
    "a.b",
    "a:b",
    "count(x)",
    "_eq",
    "c,d",
    " space",
    "*",
    "-x",
    'Say "x"',
    "%s $1 {0}",
    "UPPER",
    "ü" * 31,
]


@pytest.mark.release
def test_columns_of_any_name_are_shown_under_a_star_and_alone_by_an_alias(stage: Stage) -> None:
    columns = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}" text' for name in ODD)
    things = existing_table(stage, f"id serial PRIMARY KEY, {columns}")
    item = {"id": 1, **{name: f"of {name}" for name in ODD}}
    assert things.add({name: item[name] for name in ODD}) == [item]
    for query in ({}, {"fields": ["*"]}, {"fields": ["*.*"]}, {"search": "of UPPER"}):
        assert things.api.search(things.path, query).data == [item]
    for name in ODD:
        assert things.api.patch(f"{things.path}/1", {name: "new"}).data == {**item, name: "new"}
        item[name] = "new"
        assert things.api.get(f"/fields/{things.name}/{quote(name, safe='')}").data["field"] == name
    for name in set(ODD) - {"count(x)"}:  # which is the count of x
        alone = things.api.search(things.path, {"alias": {"alone": name}, "fields": ["alone"]})
        assert alone.data == [{"alone": "new"}]
    for name in set(ODD) - {"count(x)", "_eq"}:
        assert things.api.search(things.path, {"filter": {name: {"_eq": "new"}}}).data == [item]
    for form in ("json", "csv"):
        copy = existing_table(stage, f"id serial PRIMARY KEY, {columns}")
        assert post_file(copy, things.get(export=form).content, form=form).status == 200
        assert copy.get().data == [item]


def test_a_table_named_like_the_services_own_is_reported(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.execute("CREATE TABLE system_shop (id serial PRIMARY KEY)")
    for _ in range(2):
        assert stage.admin.get("/server/info").data["reserved_tables"] == ["system_shop"]
    assert "reserved_tables" not in stage.anonymous.get("/server/info").data
    assert stage.admin.get("/items/system_shop").status == 403
    lines = [record.getMessage() for record in caplog.records if record.name == "cms.store"]
    assert [line for line in lines if "system_shop" in line] == [
        'the table "system_shop" is no collection: names that start with "system_" are the '
        "service's own"
    ]
    stage.execute("DROP TABLE system_shop")
    assert "reserved_tables" not in stage.admin.get("/server/info").data


def test_defaults_are_told_in_the_form_of_answers(stage: Stage) -> None:
    values = {
        "numeric": "NaN",
        "double precision": "-Infinity",
        "date": "-000043-03-15",
        "time": "13:45:00.500",
        "time(0)": "24:00:00",
        "timestamp": "2024-01-02T03:04:05.828033",
        "timestamp(0)": "infinity",
        "timestamptz": "+012024-02-29T00:00:00.000Z",
        "timestamptz(0)": "-infinity",
    }
    things = existing_table(
        stage, ", ".join(["id serial PRIMARY KEY", *(f'"{kind}" {kind}' for kind in values)])
    )
    for kind, value in values.items():
        default = {"schema": {"default_value": value}}
        path = f"/fields/{things.name}/{quote(kind)}"
        assert things.api.patch(path, default).data["schema"]["default_value"] == value, kind
    assert things.add({}) == [{"id": 1, **values}]


def test_defaults_of_lists_and_of_the_databases_own_types(stage: Stage) -> None:
    columns = "id serial PRIMARY KEY, sizes integer[], m mood, r int4range"
    things = existing_table(stage, columns)
    fields = f"/fields/{things.name}"

    def set_default(name: str, value: object) -> Answer:
        return things.api.patch(f"{fields}/{name}", {"schema": {"default_value": value}})

    assert set_default("sizes", [1, 2]).status == 200
    assert set_default("m", "good").status == 200
    assert set_default("r", "[1,2)").status == 200
    things.add({})
    assert things.get(fields="sizes,m,r").data == [{"sizes": [1, 2], "m": "good", "r": "[1,2)"}]
    for name, value in (("sizes", ["x"]), ("sizes", 5), ("m", "bad"), ("r", "bad")):
        (error,) = set_default(name, value).errors
        assert (error["field"], error["value"]) == ("schema.default_value", value)
