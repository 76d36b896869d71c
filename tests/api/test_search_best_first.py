"""Pages by relevance equal those of a Python ranking, also where only the best items are read.

In a large collection PostgreSQL looks first for the items that fit best, in order or by an index,
and ranks all others only where these do not fill the page. Here collections of one block count as
large.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cms.query.sql import best_first
from cms.structure.word_indexes import make_word_indexes
from tests.client import Client
from tests.examples import example_count
from tests.members import may, member
from tests.things import Stage, Table, field, table

TEXTS = ("title", "label", "body")
BLOCK = 8192
Row = dict[str, Any]


@dataclass(frozen=True)
class Searched:
    """A searchable collection, callers who search it, and what its fields count.

    The reader sees items that are shown, the member also parts of others.
    """

    admin: Table
    member: Table
    reader: Table
    weights: dict[str, int]
    dsn: str

    def fill(self, rows: list[Row]) -> None:
        columns = ("shown", "mine", "size", *TEXTS)
        insert = f"INSERT INTO {self.admin.name} ({', '.join(columns)}) SELECT "
        values = ", ".join(f"r.{column}" for column in columns)
        source = (
            " FROM json_populate_recordset(NULL::{0}, %s) WITH ORDINALITY AS r ORDER BY ordinality"
        )
        with psycopg.connect(self.dsn) as connection:
            connection.execute(f"TRUNCATE {self.admin.name} RESTART IDENTITY".encode())
            statement = insert + values + source.format(self.admin.name)
            connection.execute(statement.encode(), [json.dumps(rows)])


@pytest.fixture(scope="module", autouse=True)
def large_from_one_block_on() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_first, "LARGE_BYTES", 0)
        patch.setattr(best_first, "SAMPLE_BYTES", BLOCK)
        # In the small collections here most pages would be read in order.
        patch.setattr(best_first, "EXPECTED_ROWS", 12)
        patch.setattr(best_first, "MAX_ROWS_IN_ORDER", 12)
        yield


@pytest.fixture(scope="module")
def weighted(stage: Stage) -> Searched:
    return searched(stage, {"title": 10, "label": 10, "body": 1, "size": 2, "id": 1})


@pytest.fixture(scope="module")
def equal(stage: Stage) -> Searched:
    return searched(stage, {"title": 1, "label": 1, "body": 1, "size": 1, "id": 1})


@pytest.fixture(scope="module")
def weighted_with_words(stage: Stage) -> Searched:
    searched_by_words = searched(stage, {"title": 10, "label": 10, "body": 1, "size": 2, "id": 1})
    return with_words(stage, searched_by_words)


@pytest.fixture(scope="module")
def equal_with_words(stage: Stage) -> Searched:
    return with_words(
        stage, searched(stage, {"title": 1, "label": 1, "body": 1, "size": 1, "id": 1})
    )


def with_words(stage: Stage, searched: Searched) -> Searched:
    """Give a collection the indexes of words, as `cms index --words` does."""
    store = stage.admin.app.store
    catalogue = store.snapshots.current().catalogue
    assert make_word_indexes(store.database, catalogue, searched.admin.name) == list(TEXTS)
    return searched


def searched(stage: Stage, weights: dict[str, int]) -> Searched:
    """Make a collection of which the member reads all but the title of items that are shown, and
    only the title of those that are the member's.
    """
    types = {"title": "string", "label": "string", "body": "text", "size": "integer"}
    fields = [
        {**field(name, kind), "meta": {"search_weight": weights[name]} if weights[name] > 1 else {}}
        for name, kind in types.items()
    ]
    flags = (field("shown", "boolean"), field("mine", "boolean"))
    things = table(stage.admin, *flags, *fields, searchable=True)
    shown = may(things.name, "id", "label", "body", "size", permissions={"shown": {"_eq": True}})
    mine = may(things.name, "id", "title", permissions={"mine": {"_eq": True}})
    everything = may(things.name, permissions={"shown": {"_eq": True}})
    return Searched(
        things,
        Table(member(stage, shown, mine), things.name),
        Table(member(stage, everything), things.name),
        weights,
        stage.dsn,
    )


# The ranking that they are compared with


def seen_by(caller: str, row: Row) -> Row | None:
    if caller == "admin" or (caller == "reader" and row["shown"]):
        return row
    if caller == "reader" or not (row["shown"] or row["mine"]):
        return None
    hidden = {"title"} if row["shown"] else {"label", "body", "size"}
    if row["shown"] and row["mine"]:
        hidden = set()
    return {name: None if name in hidden else value for name, value in row.items()}


def count_of(word: str, value: object, weight: int) -> int:
    if isinstance(value, int):
        return 1_000_000 + weight if word == str(value) else 0
    text = str(value or "").lower().replace("ä", "a")
    if word not in text:
        return 0
    is_whole = re.search(rf"(^|\W){re.escape(word)}(\W|$)", text)
    return 1_000_000 + weight if is_whole else weight


def ranked(searched: Searched, rows: list[Row], words: list[str], sort: str) -> list[int]:
    """The ids of the found rows in the order of the answer."""
    found = []
    for row in rows:
        counts = [
            max(count_of(word, row[name], weight) for name, weight in searched.weights.items())
            for word in words
        ]
        if all(counts):
            # PostgreSQL has nulls as the largest.
            size = float("inf") if row["size"] is None else row["size"]
            found.append((-sum(counts), -size if sort else 0, row["id"]))
    return [id for *_, id in sorted(found)]


# What is tried

pieces = st.sampled_from(["cat", "Cät", "cats", "dog", "hotdog", "7"])
texts = st.none() | st.builds(
    lambda parts, glue: glue.join(parts),
    st.lists(pieces, min_size=1, max_size=3),
    st.sampled_from([" ", ", ", "-", "_", ""]),
)
rows_of_texts = st.lists(
    st.fixed_dictionaries(
        dict.fromkeys(TEXTS, texts)
        | {"size": st.sampled_from([None, 1, 7]), "shown": st.booleans(), "mine": st.booleans()}
    ),
    min_size=8,
    max_size=16,
)
words_of_searches = st.lists(
    st.sampled_from(["cat", "CAT", "dog", "at", "7", "cat_7", "cat-cat"]),
    min_size=1,
    max_size=2,
    unique=True,
)
CATS = [
    {"title": "a cat", "label": None, "body": "cat", "size": 1, "shown": True, "mine": True}
] * 12
PART = {**CATS[0], "title": "concatenated"}
HIDDEN_AND_NOT = [
    {**CATS[0], "size": number % 5, "shown": number % 4 > 0, "mine": number % 3 > 0}
    for number in range(16)
]


@pytest.mark.quick(1)
@pytest.mark.parametrize("caller", ["member", "reader", "admin"])
@pytest.mark.parametrize("kind", ["weighted", "equal", "weighted_with_words", "equal_with_words"])
def test_every_page_is_that_of_the_ranking(
    request: pytest.FixtureRequest, kind: str, caller: str
) -> None:
    searched: Searched = request.getfixturevalue(kind)
    reader: Table = getattr(searched, caller)

    @settings(max_examples=example_count(100))
    @given(
        rows=rows_of_texts,
        words=words_of_searches,
        sort=st.sampled_from(["", ",-size"]),
        limit=st.sampled_from([1, 2, 4]),
        offset=st.integers(0, 3),
    )
    @example(rows=CATS, words=["cat"], sort="", limit=5, offset=0)
    # The one that fits best is found twice: in order and by an index.
    @example(rows=[CATS[0], PART, PART, PART], words=["cat"], sort="", limit=2, offset=0)
    @example(rows=HIDDEN_AND_NOT, words=["cat"], sort=",-size", limit=2, offset=0)
    def compare(rows: list[Row], words: list[str], sort: str, limit: int, offset: int) -> None:
        searched.fill(rows)
        items = [{**row, "id": number} for number, row in enumerate(rows, start=1)]
        visible = [row for item in items if (row := seen_by(caller, item))]
        expected = ranked(searched, visible, list(map(str.lower, words)), sort)
        query = f"search={'+'.join(words)}&sort=_relevance{sort}&fields=id&limit={limit}"
        answer = reader.read(f"{query}&offset={offset}&meta=filter_count").body
        ids = [item["id"] for item in answer["data"]]
        assert ids == expected[offset : offset + limit]
        assert answer["meta"]["filter_count"] == len(expected)
        assert list(pages_by_cursor(reader, query)) == expected

    compare()


def pages_by_cursor(things: Table, query: str) -> Iterator[int]:
    after = ""
    for _ in range(20):  # more than there are items
        answer = things.read(f"{query}&meta=next_cursor{after}").body
        yield from (item["id"] for item in answer["data"])
        if (token := answer["meta"]["next_cursor"]) is None:
            return
        after = f"&page[after]={token}"


def test_a_page_full_of_the_best_ranks_no_other_item(weighted: Searched) -> None:
    weighted.fill([PART, *CATS, PART])
    full, not_full = (scans(weighted, f"search=cat&sort=_relevance&limit={n}") for n in (5, 20))
    assert full == {"sample", "in order"}
    assert not_full == {"sample", "sample of found", "all"}


def test_many_of_the_best_that_come_late_are_found_by_an_index(weighted: Searched) -> None:
    weighted.fill([*[PART] * 12, *CATS])
    assert scans(weighted, "search=cat&sort=_relevance&limit=5") == {
        "sample",
        "in order",
        "sample of found",
        "by index",
    }


def test_few_of_the_best_are_found_by_an_index(weighted: Searched) -> None:
    weighted.fill([*[PART] * 20, *CATS[:5], *[PART] * 20])
    query = "search=cat&sort=_relevance"
    by_index = {"sample", "sample of found", "by index"}
    assert scans(weighted, f"{query}&limit=5") == by_index
    assert scans(weighted, f"{query}&limit=6") == {*by_index, "all"}


def test_an_order_without_an_index_is_not_read_in_order(weighted: Searched) -> None:
    weighted.fill([*[PART] * 30, *CATS])
    query = "search=cat&sort=_relevance,-shown&limit=5"
    assert "system_first" not in statement_of(weighted, query)["statement"]
    assert scanned(weighted, query) == [True, True, True, False]


def test_the_best_for_a_short_word_which_no_index_finds_may_be_read_in_order(
    weighted: Searched,
) -> None:
    short, long = (
        statement_of(weighted, f"search={word}&sort=_relevance")["statement"]
        for word in ("ca", "cat")
    )
    assert "OFFSET 0" in long
    assert "OFFSET 0" not in short


def test_where_most_of_what_is_found_fits_best_all_of_it_is_ranked(weighted: Searched) -> None:
    dogs = [{**CATS[0], "title": "dog", "body": "dog"}] * 30
    weighted.fill([*CATS[:2], *dogs])
    ranked_at_once = {"sample", "sample of found", "all"}
    assert scans(weighted, "search=cat&sort=_relevance&limit=2") == ranked_at_once


def test_what_few_items_hold_is_not_looked_for_twice(weighted: Searched) -> None:
    weighted.fill([PART] * 20)
    assert scans(weighted, "search=cat&sort=_relevance&limit=10") == {"sample", "all"}


def test_behind_items_that_fit_less_nothing_is_looked_for_but_others(weighted: Searched) -> None:
    weighted.fill([CATS[0], *[PART] * 12])
    query = "search=cat&sort=_relevance&limit=5"
    token = weighted.admin.read(f"{query}&meta=next_cursor").body["meta"]["next_cursor"]
    assert sum(scanned(weighted, f"{query}&page[after]={token}")) == 1


def test_an_index_of_words_finds_the_best_without_a_sign_of_them_in_the_sample(
    weighted_with_words: Searched,
) -> None:
    weighted_with_words.fill([*[PART] * 80, *CATS[:5]])
    query = "search=cat&sort=_relevance"
    assert word_scans(weighted_with_words, f"{query}&limit=5") == {"sample", "by index"}


def test_items_with_whole_words_in_other_fields_come_before_any_item_with_a_part(
    weighted_with_words: Searched,
) -> None:
    in_body = {**PART, "body": "a cat"}
    weighted_with_words.fill([*[{**PART, "body": None}] * 20, CATS[0], *[in_body] * 4])
    query = "search=cat&sort=_relevance"
    by_words = {"sample", "by index", "whole"}
    assert word_scans(weighted_with_words, f"{query}&limit=5") == by_words
    assert word_scans(weighted_with_words, f"{query}&limit=6") == {*by_words, "all"}


def test_a_phrase_and_a_word_of_other_letters_are_found_without_the_index_of_words(
    weighted_with_words: Searched,
) -> None:
    weighted_with_words.fill([CATS[0], {**CATS[0], "title": "no dog"}])
    for words in ("%22a cat%22", "c%C3%A4t", "a-cat"):
        query = f"search={words}&sort=_relevance"
        assert "regexp_split_to_array" not in statement_of(weighted_with_words, query)["statement"]


@pytest.mark.parametrize(
    "query",
    [
        "search=cat&sort=-_relevance",
        "search=cat&sort=title,_relevance",
        "search=cat&sort=_relevance&limit=-1",
        "search=cat",
    ],
)
def test_other_orders_and_whole_lists_are_read_as_ever(weighted: Searched, query: str) -> None:
    assert "system_best" not in statement_of(weighted, query)["statement"]


def test_without_an_index_of_the_fields_that_count_most_everything_is_ranked(admin: Client) -> None:
    things = table(admin, field("name", "string"))
    searched = Searched(things, things, things, {}, "")
    query = "search=cat&sort=_relevance"
    assert "system_best" not in statement_of(searched, query)["statement"]
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    assert "system_best" in statement_of(searched, query)["statement"]


def test_a_change_of_the_items_of_a_query_takes_the_best(weighted: Searched) -> None:
    weighted.fill([PART, *CATS])
    query = {"search": "cat", "sort": ["_relevance"], "limit": 2}
    changed = weighted.admin.api.patch(
        weighted.admin.path, {"query": query, "data": {"label": "taken"}}
    )
    assert [item["id"] for item in changed.data] == [2, 3]


def statement_of(searched: Searched, query: str) -> Row:
    path = f"{searched.admin.path}?{query}"
    explained: Row = searched.admin.api.get("/utils/explain", path=path).data
    return explained


def scans(searched: Searched, query: str) -> set[str]:
    """Which scans of the table were executed: of the sample, of the best items, and of all."""
    # In the order in which the statement has them.
    parts = ("sample", "in order", "sample of found", "by index", "all")
    executed = zip(parts, scanned(searched, query), strict=True)
    return {part for part, is_executed in executed if is_executed}


def word_scans(searched: Searched, query: str) -> set[str]:
    """Which scans of a table with indexes of words were executed."""
    parts = ("sample", "in order", "by index", "whole", "all")
    executed = zip(parts, scanned(searched, query), strict=True)
    return {part for part, is_executed in executed if is_executed}


def scanned(searched: Searched, query: str) -> list[bool]:
    """Whether each scan of the table in the plan of a read was executed."""
    explained = statement_of(searched, query)
    with psycopg.connect(searched.dsn, cursor_factory=psycopg.RawCursor) as connection:
        statement = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {explained['statement']}"
        lines = connection.execute(statement.encode(), explained["parameters"]).fetchall()
    return [
        "never executed" not in line for (line,) in lines if f" on {searched.admin.name} " in line
    ]
