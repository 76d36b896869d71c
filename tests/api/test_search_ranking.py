"""Pages by relevance equal those of a Python ranking, of the first items where many are found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.client import Client
from tests.examples import example_count
from tests.ranked_things import (
    CATS,
    EQUAL,
    IN_BODY,
    MAX_RANKED,
    PART,
    TEXTS,
    WEIGHTED,
    Row,
    Searched,
    found_items,
    pages_by_cursor,
    ranked,
    ranking_few,
    searched,
    seen_by,
    with_owners,
)
from tests.things import Stage, Table, field, table

pytestmark = pytest.mark.release

CODE = "0b5f8a6e-3c1d-4a52-9d0f-6f2f1c9f7e11"

pieces = st.sampled_from(["cat", "Cät", "cats", "dog", "hotdog", "7"])
texts = st.none() | st.builds(
    lambda parts, glue: glue.join(parts),
    st.lists(pieces, min_size=1, max_size=3),
    st.sampled_from([" ", ", ", "-", "_", ""]),
)
values = dict.fromkeys(TEXTS, texts) | {
    "size": st.sampled_from([None, 1, 7]),
    "code": st.sampled_from([None, CODE]),
    "owner": st.sampled_from([None, None, 1, 2, 3]),
    "shown": st.booleans(),
    "mine": st.booleans(),
}
rows_of_texts = st.lists(st.fixed_dictionaries(values), min_size=8, max_size=20)
words_of_searches = st.lists(
    st.sampled_from(["cat", "CAT", "dog", "at", "a", "7", "cat_7", "cat-cat", "hotdog", CODE]),
    min_size=1,
    max_size=3,
    unique=True,
)
HIDDEN_AND_NOT = [
    {**CATS[0], "size": number % 5, "shown": number % 4 > 0, "mine": number % 3 > 0}
    for number in range(16)
]
IN_TITLE = {**CATS[0], "body": "a cat and a dog"}
PARTS = [PART] * 6
NOWHERE = {**CATS[0], **dict.fromkeys(TEXTS)}


def placings(first: str, second: str) -> list[Row]:
    """Return items with two words in each way in which they may stand in the texts."""
    rows: list[Row] = []
    for one, other in product(TEXTS, repeat=2):
        row = {**NOWHERE, one: first}
        rows.append(row | {other: f"{row[other] or ''} {second}"})
    return rows


PLACINGS = placings("cat", "dog")
SEVENS = [
    *placings("cat", "7"),
    *({**NOWHERE, "size": 7, text: "a cat"} for text in TEXTS),
    *placings("7", "cat"),
]


@pytest.fixture(scope="module", autouse=True)
def few() -> Iterator[None]:
    with ranking_few():
        yield


@pytest.fixture(scope="module")
def weighted(stage: Stage) -> Searched:
    return with_owners(stage, searched(stage, WEIGHTED))


@pytest.fixture(scope="module")
def equal(stage: Stage) -> Searched:
    return with_owners(stage, searched(stage, EQUAL))


@pytest.mark.release
@pytest.mark.parametrize("caller", ["member", "reader", "admin"])
@pytest.mark.parametrize("kind", ["weighted", "equal"])
def test_every_page_is_that_of_the_ranking(
    request: pytest.FixtureRequest, kind: str, caller: str
) -> None:
    searched: Searched = request.getfixturevalue(kind)
    reader: Table = getattr(searched, caller)

    @settings(max_examples=example_count(100))
    @given(
        rows=rows_of_texts,
        words=words_of_searches,
        sort=st.sampled_from(["_relevance", "-_relevance", "_relevance,-size"]),
        limit=st.sampled_from([1, 2, 4]),
        offset=st.integers(0, 3),
    )
    @example(rows=CATS, words=["cat"], sort="_relevance", limit=5, offset=0)
    @example(rows=HIDDEN_AND_NOT, words=["cat"], sort="_relevance,-size", limit=2, offset=0)
    # The best come behind those that are ranked, or among them.
    @example(rows=[*PARTS, *PARTS, CATS[0]], words=["cat"], sort="_relevance", limit=2, offset=0)
    @example(rows=[*PARTS, IN_BODY, IN_TITLE], words=["cat"], sort="_relevance", limit=2, offset=0)
    @example(rows=[*PARTS, IN_BODY], words=["cat", "at"], sort="-_relevance", limit=2, offset=1)
    @example(rows=PLACINGS, words=["cat", "dog"], sort="_relevance", limit=2, offset=0)
    @example(rows=SEVENS, words=["cat", "7"], sort="_relevance,-size", limit=2, offset=0)
    def compare(rows: list[Row], words: list[str], sort: str, limit: int, offset: int) -> None:
        searched.fill(rows)
        items = [{**row, "id": number} for number, row in enumerate(rows, start=1)]
        visible = [row for item in items if (row := seen_by(caller, item))]
        all_found = found_items(searched, visible, list(map(str.lower, words)))
        expected = ranked(all_found[:MAX_RANKED], sort)
        query = f"search={'+'.join(words)}&sort={sort}&fields=id&limit={limit}"
        answer = reader.read(f"{query}&offset={offset}&meta=filter_count").body
        ids = [item["id"] for item in answer["data"]]
        assert ids == expected[offset : offset + limit]
        counts = {"filter_count": len(all_found)}
        if len(all_found) > MAX_RANKED:
            counts["ranked"] = MAX_RANKED
        assert answer["meta"] == counts
        assert list(pages_by_cursor(reader, query)) == expected

    compare()


def test_where_more_items_are_found_than_ranked_each_answer_says_so(weighted: Searched) -> None:
    weighted.fill([{**CATS[0], "shown": number != 1} for number in range(MAX_RANKED + 1)])
    query = "search=cat&sort=_relevance&fields=id"
    assert weighted.admin.read(query).body["meta"] == {"ranked": MAX_RANKED}
    assert weighted.admin.read(f"{query}&offset=20").body == {"data": [], "meta": {"ranked": 8}}
    # A hidden item is none of them.
    assert weighted.reader.column("id", query) == [1, 3, 4, 5, 6, 7, 8, 9]
    assert "meta" not in weighted.reader.read(query).body
    assert "meta" not in weighted.admin.read("search=cat&fields=id").body


def test_a_list_without_a_limit_has_all_items_that_are_found(weighted: Searched) -> None:
    weighted.fill([*[PART] * MAX_RANKED, CATS[0]])
    answer = weighted.admin.read("search=cat&sort=_relevance&fields=id&limit=-1").body
    assert [item["id"] for item in answer["data"]] == [9, *range(1, 9)]
    assert "meta" not in answer


def test_a_change_by_a_query_takes_the_best_of_a_page_or_all(weighted: Searched) -> None:
    weighted.fill([PART, *CATS])
    query = {"search": "cat", "sort": ["_relevance"]}
    for limit, keys in (({"limit": 2}, [2, 3]), ({}, [*range(2, 14), 1])):
        body = {"query": query | limit, "data": {"label": "taken"}}
        changed = weighted.admin.api.patch(weighted.admin.path, body)
        assert [item["id"] for item in changed.data] == keys


def test_an_index_finds_a_rare_word_that_postgresql_takes_for_a_frequent_one(
    stage: Stage, admin: Client
) -> None:
    things = table(admin, field("body", "text"), searchable=True)
    # It has no statistics of texts of more than 1,000 bytes.
    stage.execute(
        f"INSERT INTO {things.name} (body) SELECT repeat(md5(n::text) || ' ', 40) "
        f"FROM generate_series(1, 1000) AS n; ANALYZE {things.name}"
    )
    path = f"{things.path}?search=xyz&sort=_relevance&fields=id"
    assert "Bitmap Index Scan" in str(admin.get("/utils/explain", path=path).data["plan"])


def test_items_without_a_key_and_the_one_of_a_singleton_are_ranked_whole(
    stage: Stage, admin: Client
) -> None:
    fields = field("name", "string")
    things = table(admin, fields)
    things.add(*[{"name": "cat"}] * (MAX_RANKED + 1))
    stage.execute(f"CREATE VIEW {things.name}_view AS SELECT name FROM {things.name}")
    query = "search=cat&sort=_relevance&fields=name"
    answer = admin.get(f"/items/{things.name}_view?{query}").body
    assert answer == {"data": [{"name": "cat"}] * (MAX_RANKED + 1)}
    one = table(admin, fields, singleton=True)
    assert admin.patch(one.path, {"name": "cat"}).status == 200
    assert admin.get(f"{one.path}?{query}").data == {"name": "cat"}
