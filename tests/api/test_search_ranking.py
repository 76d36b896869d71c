"""Pages by relevance equal those of a Python ranking, also where only some items are read for them.

In a large collection PostgreSQL reads the items of one relevance in order, finds better ones by
indexes, and ranks all others only where these do not fill the page. Here collections of one block
count as large.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import example_count
from tests.ranked_things import (
    CATS,
    EQUAL,
    IN_BODY,
    PART,
    TEXTS,
    WEIGHTED,
    Row,
    Searched,
    large_from_one_block_on,
    pages_by_cursor,
    ranked,
    searched,
    seen_by,
    with_owners,
    with_words,
    with_words_apart,
)
from tests.things import Stage, Table

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


SEVENS = [
    *placings("cat", "7"),
    *({**NOWHERE, "size": 7, text: "a cat"} for text in TEXTS),
    *placings("7", "cat"),
]


@pytest.fixture(scope="module", autouse=True)
def large() -> Iterator[None]:
    with large_from_one_block_on():
        yield


@pytest.fixture(scope="module")
def weighted(stage: Stage) -> Searched:
    return with_owners(stage, searched(stage, WEIGHTED))


@pytest.fixture(scope="module")
def equal(stage: Stage) -> Searched:
    return with_owners(stage, searched(stage, EQUAL))


@pytest.fixture(scope="module")
def weighted_with_words(stage: Stage) -> Searched:
    return with_words(stage, with_owners(stage, searched(stage, WEIGHTED)))


@pytest.fixture(scope="module")
def equal_with_words(stage: Stage) -> Searched:
    return with_words(stage, with_owners(stage, searched(stage, EQUAL)))


@pytest.fixture(scope="module")
def weighted_with_words_apart(stage: Stage) -> Searched:
    return with_words_apart(stage, with_owners(stage, searched(stage, WEIGHTED)))


KINDS = [
    "weighted",
    "equal",
    "weighted_with_words",
    "equal_with_words",
    "weighted_with_words_apart",
]


@pytest.mark.quick(1)
@pytest.mark.parametrize("caller", ["member", "reader", "admin"])
@pytest.mark.parametrize("kind", KINDS)
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
    # Parts of words are read in order, and what fits better comes behind them.
    @example(rows=[*PARTS, IN_BODY, *PARTS, IN_TITLE], words=["cat"], sort="", limit=2, offset=0)
    @example(rows=[*PARTS, IN_BODY, IN_TITLE], words=["cat", "at"], sort="", limit=2, offset=1)
    @example(rows=[*PARTS, *PARTS], words=["cat", "bobcat"], sort="", limit=2, offset=0)
    # Behind more whole words than the page has items, parts are found by an index.
    @example(rows=[*CATS, PART, PART], words=["cat"], sort="", limit=2, offset=0)
    # A page that begins behind the last but one of the whole words goes on with parts.
    @example(rows=[*PARTS, IN_BODY, IN_BODY, IN_BODY], words=["cat"], sort="", limit=2, offset=0)
    # Several words are looked for in each placing, and beside numbers.
    @example(rows=placings("cat", "dog"), words=["cat", "dog"], sort="", limit=2, offset=0)
    @example(rows=SEVENS, words=["cat", "7"], sort=",-size", limit=2, offset=0)
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
