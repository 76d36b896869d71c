"""Search in the text, number and UUID fields of a collection."""

from __future__ import annotations

import re
from unicodedata import normalize

import psycopg
import pytest

from cms.query.language.limits import MAX_SEARCH_WORDS
from tests.client import Client
from tests.things import Stage, Table, field, filled_things, table

KEY = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


things = filled_things(
    [
        field("t", "text"),
        field("n", "integer"),
        field("d", "decimal"),
        field("f", "float"),
        field("u", "uuid"),
        field("secret", "hash"),
        field("hidden", "string", special="conceal"),
    ],
    [
        {"t": "Crème Brûlée 100%", "n": 2000},
        {"t": "creme_brulee \\ done", "d": "12.50"},
        {"t": "ΣΊΣΥΦΟΣ Ёлка", "f": 0.5, "u": KEY},
        {"secret": "needle", "hidden": "needle"},
        {"t": "％ ＿ ＼ full width"},
    ],
)


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


SCRIPTS = [
    ("Ο Οδυσσεύς στην Ιθάκη", ["οδυσσευς", "ΟΔΥΣΣΕΥΣ", "Οδυσσεύς", "ιθακη", "οδυσσευσ"]),
    ("مُحَمَّد", ["محمد", "مُحَمَّد"]),
    ("محمـــد", ["محمد"]),
    ("שָׁלוֹם עֲלֵיכֶם", ["שלום", "עליכם", "שָׁלוֹם"]),
    (normalize("NFD", "한글 문자"), ["한글", normalize("NFD", "한글")]),
    ("한국어", [normalize("NFD", "한국어"), "한국"]),
    (normalize("NFD", "ガーデン"), ["ガーデン", normalize("NFD", "ガーデン")]),
    (normalize("NFD", "Søren Ångström"), ["angstrom", "Ångström", "søren"]),
    ("Straße nach Łódź", ["strasse", "lodz", "ŁÓDŹ"]),
    ("İstanbul – Ｗｉｄｅ", ["istanbul", "wide"]),
    ("हिन्दी क़लम", ["हिन्दी", normalize("NFD", "क़लम")]),
    ("Tiếng Việt", ["tieng", normalize("NFD", "Việt"), "viet"]),
    ("Größe — שלום", ["grosse", "größe"]),
]


@pytest.mark.parametrize(("text", "words"), SCRIPTS)
def test_words_of_every_script_are_found_in_their_usual_spellings(
    things: Table, text: str, words: list[str]
) -> None:
    key = things.add({"t": text})[0]["id"]
    for word in words:
        assert [item["id"] for item in things.get(search=word).data] == [key], word
        assert "<mark>" in things.get(search=word, highlight="true").data[0]["_highlights"]["t"]
    things.api.delete(f"{things.path}/{key}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brulee creme", [1, 2]),
        ("crème 2000", [1]),
        ("  creme \t 12.5 ", [2]),
        ("creme 2000 12.5", []),
        ('"brulee 100"', [1]),
        ('"100 brulee"', []),
        ('"creme" "brulee 100"', [1]),
        ('"2000"', [1]),
        ('""', [1, 2, 3, 4, 5]),
        ('" "', [1, 2, 3, 4, 5]),
        ("   ", [1, 2, 3, 4, 5]),
        ('"brulee', []),
        ('creme"', []),
        ("creme creme CREME", [1, 2]),
    ],
)
def test_every_word_is_found_in_some_field_and_words_in_quotes_are_a_phrase(
    things: Table, text: str, expected: list[int]
) -> None:
    assert [item["id"] for item in things.get(search=text).data] == expected
    answer = things.api.search(things.path, {"search": text, "fields": ["id"]})
    assert [item["id"] for item in answer.data] == expected


def test_words_are_searched_in_lists_of_items_in_aggregates_and_in_exports(
    admin: Client, things: Table
) -> None:
    words = "search=brulee+creme"
    assert things.read(f"{words}&aggregate[count]=*").data == [{"count": 2}]
    assert things.read(f"{words}&export=csv&fields=id").text.split() == ["id", "1", "2"]
    parents = table(admin, field("name", "string"))
    children = table(admin, field("name", "string"), field("parent", "integer"))
    admin.post(
        "/relations",
        {
            "collection": children.name,
            "field": "parent",
            "related_collection": parents.name,
            "meta": {"one_field": "children"},
        },
    )
    parents.add({"name": "one"})
    children.add({"name": "red round", "parent": 1}, {"name": "red", "parent": 1})
    query = "fields=children.id&deep[children][_search]=round+red"
    assert parents.read(query).data == [{"children": [{"id": 1}]}]


def test_more_words_than_the_limit_are_refused(things: Table) -> None:
    words = "+".join(f"w{number}" for number in range(MAX_SEARCH_WORDS))
    assert things.read(f"search={words}").status == 200
    refused = things.read(f"search={words}+more")
    assert refused.codes == ["INVALID_QUERY"]
    assert refused.errors[0]["parameter"] == "search"


@pytest.mark.parametrize(
    ("word", "expected"),
    [("100%", [1]), ("0%", [1]), ("_b", [2]), ("\\ d", [2, 5]), ('"\\ d"', [2]), ("c%e", [])],
)
def test_no_letter_of_a_word_is_special(things: Table, word: str, expected: list[int]) -> None:
    assert [item["id"] for item in things.get(search=word).data] == expected


@pytest.mark.parametrize("word", ["％ ＿", "＼ f"])
def test_a_letter_that_loses_its_width_does_not_become_special(things: Table, word: str) -> None:
    assert [item["id"] for item in things.get(search=word).data] == [5]


def test_without_the_extension_accents_count_and_everything_else_is_the_same(
    admin: Client, stage: Stage, things: Table
) -> None:
    definitions = [
        stage.value(f"SELECT pg_get_functiondef('{name}(text)'::regprocedure)")
        for name in ("system_fold", "system_fold_unindexed")
    ]
    for definition in definitions:
        # what the migration makes without it
        stage.execute(re.sub(r"RETURN .*", "RETURN lower($1)", definition, flags=re.DOTALL))
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
        for definition in definitions:
            stage.execute(definition)


@pytest.mark.release
def test_a_text_is_folded_alike_with_and_without_an_index(stage: Stage) -> None:
    numbers = "generate_series(1, 200000) AS n WHERE n NOT BETWEEN 55296 AND 57343"
    texts = f"SELECT chr(n) AS t FROM {numbers}"
    different = "system_fold(t) IS DISTINCT FROM system_fold_unindexed(t)"
    assert stage.value(f"SELECT count(*) FROM ({texts}) AS letters WHERE {different}") == 0
    assert stage.value(
        "SELECT system_fold_unindexed(NULL) IS NULL AND system_fold_unindexed('') = ''"
    )
    assert stage.value("SELECT system_fold(NULL) IS NULL AND system_fold('') = ''")


def test_postgresql_inlines_what_indexes_fold_texts_by(stage: Stage) -> None:
    plan = stage.value(
        "EXPLAIN (VERBOSE, FORMAT JSON) "
        "SELECT system_fold(t) FROM (VALUES ('A'), ('B')) AS texts (t)"
    )
    assert "octet_length" in str(plan)
    assert "system_fold(" not in str(plan)


def test_the_extension_cannot_be_dropped_from_under_searches(stage: Stage) -> None:
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        stage.execute("DROP EXTENSION unaccent")


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
