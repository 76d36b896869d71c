"""Search in the text, number and UUID fields of a collection."""

from __future__ import annotations

import re

import pytest

from tests.client import Client
from tests.things import Stage, Table, field, table

KEY = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


@pytest.fixture(scope="module")
def things(admin: Client) -> Table:
    things = table(
        admin,
        field("t", "text"),
        field("n", "integer"),
        field("d", "decimal"),
        field("f", "float"),
        field("u", "uuid"),
        field("secret", "hash"),
        field("hidden", "string", special="conceal"),
    )
    things.add(
        {"t": "Crème Brûlée 100%", "n": 2000},
        {"t": "creme_brulee \\ done", "d": "12.50"},
        {"t": "ΣΊΣΥΦΟΣ Ёлка", "f": 0.5, "u": KEY},
        {"secret": "needle", "hidden": "needle"},
        {"t": "％ ＿ ＼ full width"},
    )
    return things


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("crème", [1, 2]),
        ("CREME", [1, 2]),
        ("brulée", [1, 2]),
        ("елка", [3]),
        ("σίσυφο", [3]),
        ("2000", [1]),
        ("12.5", [2]),
        ("12.500", [2]),
        ("0.5", [3]),
        (KEY.upper(), [3]),
        ("a0eebc99", []),
        ("needle", []),
        ("**********", []),
        ("done", [2]),
        ("'", []),
        ("1e400", []),
        ("1e999999", []),
        ("9" * 400, []),
        ("x" * 1000, []),
        ("\u202e", []),
    ],
)
def test_a_word_is_found_without_regard_to_case_and_accents(
    things: Table, word: str, expected: list[int]
) -> None:
    assert [item["id"] for item in things.get(search=word).data] == expected


@pytest.mark.parametrize(
    ("word", "expected"), [("100%", [1]), ("0%", [1]), ("_b", [2]), ("\\ d", [2]), ("c%e", [])]
)
def test_no_letter_of_a_word_is_special(things: Table, word: str, expected: list[int]) -> None:
    assert [item["id"] for item in things.get(search=word).data] == expected


@pytest.mark.parametrize("word", ["％ ＿", "＼ f"])
def test_a_letter_that_loses_its_width_does_not_become_special(things: Table, word: str) -> None:
    assert [item["id"] for item in things.get(search=word).data] == [5]


def test_without_the_extension_accents_count_and_everything_else_is_the_same(
    admin: Client, stage: Stage, things: Table
) -> None:
    definition = stage.value("SELECT pg_get_functiondef('system_fold(text)'::regprocedure)")
    stage.execute(
        re.sub(r"RETURN .*", "RETURN lower($1)", definition)
    )  # what the migration makes without it
    try:
        for word, expected in (
            ("crème", [1]),
            ("CRÈME", [1]),
            ("creme", [2]),
            ("100%", [1]),
            ("\\ d", [2]),
            ("c%e", []),
        ):
            assert [item["id"] for item in things.get(search=word).data] == expected, word
    finally:
        stage.execute(definition)


def test_search_and_filter_both_hold(things: Table) -> None:
    assert things.column("id", "search=creme&filter[id][_gt]=1") == [2]
    assert things.read("search=creme&meta=total_count,filter_count&limit=1").body["meta"] == {
        "total_count": 5,
        "filter_count": 2,
    }


def test_an_empty_word_finds_everything(things: Table) -> None:
    assert things.column("id", "search=") == [1, 2, 3, 4, 5]


def test_a_field_can_be_left_out_of_the_search(admin: Client) -> None:
    quiet = table(
        admin, {"field": "t", "type": "text", "schema": {}, "meta": {"searchable": False}}
    )
    quiet.add({"t": "word"})
    assert quiet.column("id", "search=word") == []


def test_where_nothing_can_be_searched_nothing_is_found(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE dates (d date PRIMARY KEY); INSERT INTO dates VALUES ('2024-01-01')"
    )
    assert stage.admin.get("/items/dates?search=2024").data == []


def test_too_long_or_wrong_a_word_is_refused(things: Table) -> None:
    for query_string in (f"search={'x' * 1001}", "search[a]=b", "search[]=a", "search=%00"):
        assert things.read(query_string).codes == ["INVALID_QUERY"], query_string
