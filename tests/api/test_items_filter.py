"""Filters over one table: every operator met with every family of types."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest

from cms.query.language.operators import OPERATORS
from tests.client import Answer, Client
from tests.things import Stage, Table, field, filled_things, table

# A low, a middle and a high value of each type: the items 1, 2 and 3; item 4 holds null.
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "string": ("Apple", "banana", "cherry"),
    "text": ("Apple", "banana", "cherry"),
    "integer": (-5, 0, 7),
    "bigInteger": (-(2**63), 0, 2**63 - 1),
    "decimal": ("-0.1", "0", "12345678901234567890.5"),
    "float": (-1.5, 0.1, 1e300),
    "date": ("0001-01-01", "2024-02-29", "9999-12-31"),
    "time": ("00:00:00", "12:30:00", "23:59:59"),
    "datetime": ("0001-01-01T00:00:00", "2024-02-29T12:00:00", "9999-12-31T00:00:00"),
    "timestamp": ("0001-01-01T00:00:00Z", "2024-02-29T12:00:00Z", "9999-12-31T00:00:00Z"),
    "uuid": ("1" * 32, "9" * 32, "f" * 32),
    "boolean": (False, True, True),
    "csv": (["a", "b"], ["b", "c"], []),
    "json": ([1, 2], {"a": 1}, []),
    "hash": ("a", "b", "c"),
    "binary": ("AA==", "AQ==", "Ag=="),
}
ORDERED = (
    "string",
    "text",
    "integer",
    "bigInteger",
    "decimal",
    "float",
    "date",
    "time",
    "datetime",
    "timestamp",
)
TEXTS = ("string", "text")
FITTING = {
    "_eq _neq _in _nin": {*ORDERED, "uuid", "boolean"},
    "_lt _lte _gt _gte _between _nbetween": {*ORDERED},
    "_ieq _nieq": {*TEXTS},
    "_empty _nempty": {*TEXTS, "csv", "json", "hash"},
    "_null _nnull": {*VALUES},
    "_contains _ncontains _icontains _nicontains _starts_with _nstarts_with _istarts_with "
    "_nistarts_with": {
        *TEXTS,
        "csv",
    },
    "_ends_with _nends_with _iends_with _niends_with": {*TEXTS, "csv"},
    "_intersects _nintersects _intersects_bbox _nintersects_bbox": set[str](),
}


things = filled_things(
    [*(field(f"a_{kind}", kind) for kind in VALUES)],
    [*({f"a_{kind}": values[index] for kind, values in VALUES.items()} for index in range(3)), {}],
)


def ids(things: Table, filter: object) -> list[int]:
    ids: list[int] = things.column("id", f"fields=id&sort=id&filter={quote(json.dumps(filter))}")
    return ids


def refused(things: Table, filter: object) -> Answer:
    answer = things.get(filter=json.dumps(filter))
    assert (answer.status, set(answer.codes)) == (400, {"INVALID_QUERY"}), answer.text
    return answer


@pytest.mark.parametrize("kind", ORDERED)
def test_equality_order_and_lists_of_what_has_an_order(things: Table, kind: str) -> None:
    low, mid, high = VALUES[kind]
    expected = [
        ("_eq", mid, [2]),
        ("_neq", mid, [1, 3]),
        ("_lt", mid, [1]),
        ("_lte", mid, [1, 2]),
        ("_gt", mid, [3]),
        ("_gte", mid, [2, 3]),
        ("_in", [low, high], [1, 3]),
        ("_nin", [low, high], [2]),
        ("_between", [low, mid], [1, 2]),
        ("_nbetween", [low, mid], [3]),
    ]
    for operator, operand, keys in expected:
        assert ids(things, {f"a_{kind}": {operator: operand}}) == keys, operator


@pytest.mark.parametrize("kind", ["uuid", "boolean"])
def test_equality_and_lists_of_what_has_none(things: Table, kind: str) -> None:
    first, second, _ = VALUES[kind]
    assert ids(things, {f"a_{kind}": {"_eq": first}}) == [1]
    assert ids(things, {f"a_{kind}": {"_neq": second}}) == ([1] if kind == "boolean" else [1, 3])
    assert ids(things, {f"a_{kind}": {"_in": [first]}}) == [1]
    assert 1 not in ids(things, {f"a_{kind}": {"_nin": [first]}})


@pytest.mark.parametrize("kind", VALUES)
def test_null_and_not_null_of_every_type(things: Table, kind: str) -> None:
    for operator, operand, keys in (
        ("_null", True, [4]),
        ("_null", "false", [1, 2, 3]),
        ("_nnull", True, [1, 2, 3]),
        ("_nnull", 0, [4]),
    ):
        assert ids(things, {f"a_{kind}": {operator: operand}}) == keys


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind in FITTING["_eq _neq _in _nin"]])
def test_lists_may_be_empty_and_equality_may_be_with_null(things: Table, kind: str) -> None:
    assert ids(things, {f"a_{kind}": {"_in": []}}) == []
    assert ids(things, {f"a_{kind}": {"_nin": []}}) == [1, 2, 3, 4]
    assert ids(things, {f"a_{kind}": {"_eq": None}}) == [4]
    assert ids(things, {f"a_{kind}": None}) == [4]
    assert ids(things, {f"a_{kind}": {"_neq": None}}) == [1, 2, 3]


@pytest.mark.quick(48)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("kind", VALUES)
def test_an_operator_that_does_not_fit_the_type_is_refused_and_one_that_fits_is_not(
    things: Table, kind: str, operator: str
) -> None:
    fitting = next(kinds for names, kinds in FITTING.items() if operator in names.split())
    operand = {"_between": list(VALUES[kind][:2]), "_nbetween": list(VALUES[kind][:2])}.get(
        operator, VALUES[kind][0]
    )
    if operator in ("_null", "_nnull", "_empty", "_nempty"):
        operand = True
    if (
        kind in ("csv", "json")
        and isinstance(operand, list)
        and "between" not in operator
        and operator[-2:] != "in"
    ):
        operand = "a"
    answer = things.get(filter=json.dumps({f"a_{kind}": {operator: operand}}))
    assert answer.status == (200 if kind in fitting else 400), answer.text


@pytest.mark.parametrize(
    ("kind", "expected"), [("string", []), ("text", []), ("csv", [3]), ("json", [3]), ("hash", [])]
)
def test_empty_is_null_or_holds_nothing(things: Table, kind: str, expected: list[int]) -> None:
    assert ids(things, {f"a_{kind}": {"_empty": True}}) == [*expected, 4]
    assert ids(things, {f"a_{kind}": {"_empty": False}}) == [
        n for n in (1, 2, 3) if n not in expected
    ]
    assert ids(things, {f"a_{kind}": {"_nempty": True}}) == [
        n for n in (1, 2, 3) if n not in expected
    ]


def test_every_empty_json_is_empty(admin: Client) -> None:
    things = table(admin, field("j", "json"))
    values: list[Any] = [[], {}, "", [[]], 0, False, " ", None]
    things.add(*({"j": value} for value in values))
    assert ids(things, {"j": {"_empty": True}}) == [1, 2, 3, 8]


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("_contains", "an", [2]),
        ("_contains", "AN", []),
        ("_ncontains", "an", [1, 3]),
        ("_icontains", "APP", [1]),
        ("_nicontains", "APP", [2, 3]),
        ("_starts_with", "ban", [2]),
        ("_nstarts_with", "ban", [1, 3]),
        ("_istarts_with", "a", [1]),
        ("_nistarts_with", "a", [2, 3]),
        ("_ends_with", "rry", [3]),
        ("_nends_with", "rry", [1, 2]),
        ("_iends_with", "PLE", [1]),
        ("_niends_with", "PLE", [2, 3]),
        ("_ieq", "aPPLE", [1]),
        ("_nieq", "aPPLE", [2, 3]),
        ("_eq", "", []),
        ("_contains", "", [1, 2, 3]),
    ],
)
def test_text_operators(things: Table, operator: str, operand: str, expected: list[int]) -> None:
    assert ids(things, {"a_string": {operator: operand}}) == expected


def test_text_operators_on_csv_speak_of_its_stored_form(things: Table) -> None:
    assert ids(things, {"a_csv": {"_contains": "b"}}) == [1, 2]
    assert ids(things, {"a_csv": {"_starts_with": "a,"}}) == [1]


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "operand", ["%", "_", "\\", "\\%", "50% off_", "'", '"', "{0}", "$1", "%s", "👩", "é"]
)
def test_no_letter_of_an_operand_is_special(admin: Client, operand: str) -> None:
    things = table(admin, field("t", "text"))
    things.add({"t": f"a{operand}b"}, {"t": "axxxb"}, {"t": operand})
    assert ids(things, {"t": {"_contains": operand}}) == [1, 3]
    assert ids(things, {"t": {"_starts_with": f"a{operand}"}}) == [1]
    assert ids(things, {"t": {"_iends_with": f"{operand}B"}}) == [1]
    assert ids(things, {"t": {"_in": [operand]}}) == [3]
    assert things.column("id", f"filter[t]={quote(operand)}") == [3]


@pytest.mark.parametrize(
    ("kind", "operand"),
    [
        ("integer", "x"),
        ("integer", 1.5),
        ("integer", ""),
        ("integer", 10**400),
        ("integer", "NaN"),
        ("bigInteger", 2**63),
        ("float", "x"),
        ("decimal", "infinity"),
        ("boolean", "maybe"),
        ("date", "2024-02-30"),
        ("date", ""),
        ("time", "noon"),
        ("time", "10:00:00Z"),
        ("datetime", "2024"),
        ("timestamp", "x"),
        ("uuid", "x"),
        ("uuid", ""),
        ("string", True),
        ("string", {}),
        ("string", ["a"]),
    ],
)
def test_an_operand_of_the_wrong_type_is_refused(things: Table, kind: str, operand: object) -> None:
    refused(things, {f"a_{kind}": {"_eq": operand}})


def test_operands_of_numbers_are_exact(things: Table) -> None:
    assert things.column("id", "filter[a_decimal]=12345678901234567890.5") == [3]
    assert things.column("id", "filter[a_decimal]=12345678901234567890.4") == []
    assert things.column("id", "filter[a_bigInteger]=9223372036854775807") == [3]
    assert things.column("id", "filter[a_bigInteger]=9223372036854775806") == []


@pytest.mark.parametrize(
    "filter",
    [
        {"a_integer": {"_between": [1]}},
        {"a_integer": {"_between": [1, 2, 3]}},
        {"a_integer": {"_between": [1, None]}},
        {"a_integer": {"_in": [None]}},
        {"a_integer": {"_in": [[1]]}},
        {"a_integer": {"_lt": None}},
        {"a_integer": {"_lt": [1]}},
        {"a_integer": {"_like": 1}},
        {"a_integer": {"_null": "perhaps"}},
        {"a_integer": [1]},
        {"a_integer": {"b": 1}},
        {"a_integer": {"_some": {"id": 1}}},
        {"_eq": 1},
        {"_and": 1},
        {"_or": {"a_integer": 1}},
        {"_and": [1]},
        {"nothing": 1},
        {"a_integer": {"_in": list(range(10_001))}},
        {"a_timestamp": {"_lt": "$NOW(1 fortnight)"}},
        {"a_timestamp": {"_in": ["$NOW("]}},
        {"a_timestamp": {"_lt": "$NOW(999999999 years)"}},
        {"a_timestamp": {"_lt": "$NOW(-١ day)"}},
        {"a_string": {"_eq": "$NOW"}},
        [1],
        1,
        "x",
    ],
)
def test_a_filter_of_another_shape_is_refused(things: Table, filter: object) -> None:
    refused(things, filter)


def test_the_place_of_a_fault_is_reported(things: Table) -> None:
    fault = refused(things, {"_and": [{"id": 1}, {"a_integer": {"_like": 1}}]}).errors[0]
    assert fault["path"] == "filter[_and][1][a_integer][_like]"
    fault = refused(things, {"a_integer": {"_eq": "x"}}).errors[0]
    assert "a_integer _eq" in fault["message"]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"_and": []}, [1, 2, 3, 4]),
        ({"_or": []}, []),
        ({"_and": [{}, {"_or": [{}]}]}, [1, 2, 3, 4]),
        ({"_or": [{"id": 1}, {"a_integer": 7}]}, [1, 3]),
        ({"_and": [{"id": {"_gt": 1}}, {"a_integer": {"_lt": 7}}]}, [2]),
        ({"id": {"_gt": 1, "_lt": 3}}, [2]),
        ({"id": {"_gt": 1}, "a_string": {"_nnull": True}}, [2, 3]),
        ({"id": {"_or": [{"_lt": 2}, {"_gt": 3}]}}, [1, 4]),
        ({"id": {"_and": [{"_in": [1, 2]}, {"_neq": 1}]}}, [2]),
        ({"_or": [{"_and": [{"id": 1}, {"id": 2}]}, {"_or": [{"id": 3}]}]}, [3]),
    ],
)
def test_logical_groups(things: Table, filter: object, expected: list[int]) -> None:
    assert ids(things, filter) == expected


@pytest.mark.parametrize(
    ("query_string", "expected"),
    [
        ("filter[id]=2", [2]),
        ("filter[id][_in]=1,3", [1, 3]),
        ("filter[id][_in][]=1&filter[id][_in][]=3", [1, 3]),
        ("filter[id][_in][0]=1&filter[id][_in][1]=3", [1, 3]),
        ("filter[id][_in]=", []),
        ("filter[id][_between]=2,3", [2, 3]),
        ("filter[_or][0][id][_eq]=1&filter[_or][1][id][_eq]=4", [1, 4]),
        ("filter[_and][10][id][_gt]=1&filter[_and][9][id][_lt]=4", [2, 3]),
        ("filter[a_string][_null]", [4]),
        ("filter[a_string][_null]=true", [4]),
        ("filter=", [1, 2, 3, 4]),
        ("filter%5Bid%5D%5B_eq%5D=2", [2]),
    ],
)
def test_filters_in_brackets(things: Table, query_string: str, expected: list[int]) -> None:
    assert things.column("id", query_string) == expected


def test_another_operand_is_not_parsed_anew(things: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    query_string = "filter[id][_gte]={}&filter[a_string][_contains]=an&fields=id"
    assert things.column("id", query_string.format(1)) == [2]
    monkeypatch.setattr(
        "cms.query.language.query_parser.parse_filter", lambda *args: pytest.fail("it is parsed")
    )
    assert things.column("id", query_string.format(2)) == [2]
    assert things.column("id", query_string.format(3)) == []
    fault = things.read(query_string.format("much")).errors[0]
    assert (fault["code"], fault["message"].count("much")) == ("INVALID_QUERY", 0)


@pytest.mark.quick(3)
@pytest.mark.parametrize("operator", ["_eq", "_contains", "_lt", "_in", "_between"])
def test_nothing_can_be_learned_of_a_secret(admin: Client, operator: str) -> None:
    safe = table(admin, field("h", "hash"), field("c", "string", special="conceal"))
    safe.add({"h": "a", "c": "b"}, {})
    operand = ["a", "b"] if operator in ("_in", "_between") else "b"
    for name in ("h", "c"):
        refused(safe, {name: {operator: operand}})
        assert ids(safe, {name: {"_nnull": True}}) == [1]
        assert ids(safe, {name: {"_empty": True}}) == [2]


def test_the_moment_and_the_caller_stand_for_values(admin: Client) -> None:
    me = admin.get("/users/me").data
    things = table(
        admin,
        field("at", "timestamp"),
        field("day", "date"),
        field("local", "datetime"),
        field("who", "uuid"),
    )
    things.add(
        {"at": "2000-01-01", "day": "2000-01-01", "local": "2000-01-01", "who": me["id"]},
        {"day": "9999-01-01"},
    )
    for name in ("at", "day", "local"):
        assert ids(things, {name: {"_lt": "$NOW(-1 year)"}}) == [1]
        assert ids(things, {name: {"_between": ["$NOW(-200 years)", "$NOW(+1 mo)"]}}) == [1]
        assert ids(things, {name: {"_in": ["$NOW", "2000-01-01"]}}) == [1]
    assert ids(things, {"day": {"_gt": "$NOW"}}) == [2]
    assert ids(things, {"who": "$CURRENT_USER"}) == [1]
    assert ids(things, {"who": {"_in": ["$CURRENT_USER", "$CURRENT_ROLE"]}}) == [1]
    assert ids(things, {"who": {"_neq": "$CURRENT_USER"}}) == []


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"author": {"_nnull": True, "name": "Ann"}}, [1, 2]),
        ({"author": {"_neq": 2, "name": {"_contains": "n"}}}, [1, 2]),
        ({"author": {"_or": [{"_null": True}, {"name": "Ben"}]}}, [3, 4]),
        (
            {"author": {"_and": [{"_or": [{"_null": True}, {"name": "Ann"}]}, {"_nnull": True}]}},
            [1, 2],
        ),
        ({"author": {"_null": True, "name": "Ann"}}, []),
    ],
)
def test_an_operator_and_a_path_may_stand_at_one_relation(
    books_of_authors: Table, filter: object, expected: list[int]
) -> None:
    assert ids(books_of_authors, filter) == expected


@pytest.fixture(scope="module")
def books_of_authors(admin: Client) -> Table:
    """Two books of Ann (1), one of Ben (2), one of nobody."""
    authors = table(admin, field("name", "string"))
    books = table(admin, field("author", "integer"))
    relation = {
        "collection": books.name,
        "field": "author",
        "related_collection": authors.name,
        "schema": {},
    }
    assert admin.post("/relations", relation).status == 200
    authors.add({"name": "Ann"}, {"name": "Ben"})
    books.add({"author": 1}, {"author": 1}, {"author": 2}, {})
    return books


@pytest.mark.release
@pytest.mark.parametrize(
    ("kind", "largest"), [("smallint", 2**15 - 1), ("integer", 2**31 - 1), ("bigint", 2**63 - 1)]
)
def test_lists_of_numbers_may_name_what_a_column_cannot_hold(
    stage: Stage, kind: str, largest: int
) -> None:
    name = table(stage.admin).name + "_counts"
    stage.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, n {kind})")
    stage.execute(f"INSERT INTO {name} (n) VALUES (1), ({largest}), (-{largest} - 1), (NULL)")
    things = Table(stage.admin, name)
    beyond = [40_000, 2**40] if kind != "bigint" else [5]

    def matching(**test: object) -> list[int]:
        return ids(things, {"n": test})

    assert matching(_in=[largest, *beyond]) == [2]
    assert matching(_in=[-largest - 1, 1]) == [1, 3]
    assert matching(_in=[*beyond]) == []
    assert matching(_nin=[largest, *beyond]) == [1, 3]
    assert matching(_nin=[*beyond]) == [1, 2, 3]
    assert matching(_nin=[]) == [1, 2, 3, 4]


@pytest.mark.release
@pytest.mark.parametrize("kind", ["smallint", "integer", "bigint"])
@pytest.mark.parametrize("operator", ["_in", "_nin"])
def test_long_lists_of_numbers_are_compared_in_one_type(
    stage: Stage, kind: str, operator: str
) -> None:
    """Else PostgreSQL compares each row with all of them, instead of looking it up."""
    name = table(stage.admin).name + "_numbers"
    stage.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, n {kind})")
    numbers = ",".join(map(str, range(20)))
    plan = stage.admin.get(
        "/utils/explain", path=f"/items/{name}?filter[n][{operator}]={numbers}"
    ).data
    (test,) = re.findall(
        r"\(?t0\.\"?n\"?\)?(::\w+)? (?:= ANY|<> ALL) \(\$\d+::(\w+)\[\]\)", plan["statement"]
    )
    assert (test[0].removeprefix("::") or kind) == test[1]
