"""Which items of a large collection are read for a page by relevance.

That the pages are right is what tests/api/test_search_ranking.py tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import psycopg
import pytest

from tests.client import Client
from tests.ranked_things import (
    CATS,
    EQUAL,
    IN_BODY,
    PART,
    Row,
    Searched,
    large_from_one_block_on,
    searched,
    with_owners,
    with_words,
)
from tests.things import Stage, field, table

DOG = {**CATS[0], "title": "dog", "body": "dog"}
PART_IN_BODY = {**PART, "title": "dog"}
QUERY = "search=cat&sort=_relevance"
TITLE_FIRST = {"title": 10, "label": 10}


@pytest.fixture(scope="module", autouse=True)
def large() -> Iterator[None]:
    with large_from_one_block_on():
        yield


@pytest.fixture(scope="module")
def weighted(stage: Stage) -> Searched:
    return searched(stage, TITLE_FIRST)


@pytest.fixture(scope="module")
def weighted_with_words(stage: Stage) -> Searched:
    return with_words(stage, searched(stage, TITLE_FIRST))


@pytest.fixture(scope="module")
def equal_with_words(stage: Stage) -> Searched:
    return with_words(stage, searched(stage, EQUAL))


@pytest.fixture(scope="module")
def equal_with_owners(stage: Stage) -> Searched:
    return with_words(stage, with_owners(stage, searched(stage, EQUAL)))


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


def test_of_long_texts_the_sample_has_a_part_of_its_rows(weighted: Searched) -> None:
    query = f"{QUERY}&fields=id&limit=5"
    weighted.fill(CATS * 3)
    assert sampled_rows(weighted, query) == 36
    weighted.fill([{**row, "body": Random(0).randbytes(6000).hex()} for row in CATS * 3])
    assert sampled_rows(weighted, query) < 24  # of which seven are to be expected
    assert weighted.admin.column("id", query) == [1, 2, 3, 4, 5]


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
    weighted.fill([*CATS[:2], *[DOG] * 30])
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
    assert word_scans(weighted_with_words, f"{QUERY}&limit=5") == {"sample", "best"}


def test_items_with_whole_words_in_other_fields_come_before_any_item_with_a_part(
    weighted_with_words: Searched,
) -> None:
    weighted_with_words.fill([*[DOG] * 20, PART_IN_BODY, CATS[0], *[IN_BODY] * 4])
    by_words = {"sample", "best", "whole"}
    assert word_scans(weighted_with_words, f"{QUERY}&limit=5") == by_words
    assert word_scans(weighted_with_words, f"{QUERY}&limit=6") == {
        *by_words,
        "parts",
        "all",
    }


def test_behind_whole_words_frequent_parts_are_read_in_order(equal_with_words: Searched) -> None:
    equal_with_words.fill([*[PART] * 20, CATS[0], IN_BODY])
    in_order = {"sample", "best", "ordered"}
    assert word_scans(equal_with_words, f"{QUERY}&limit=5") == in_order
    assert equal_with_words.admin.column("id", f"{QUERY}&limit=5") == [21, 22, 1, 2, 3]


def test_parts_in_fields_that_count_most_are_read_without_those_in_others(
    weighted_with_words: Searched,
) -> None:
    weighted_with_words.fill([PART_IN_BODY, *[PART] * 20, IN_BODY, CATS[0]])
    in_order = {"sample", "best", "whole", "ordered"}
    assert word_scans(weighted_with_words, f"{QUERY}&limit=5") == in_order
    assert weighted_with_words.admin.column("id", f"{QUERY}&limit=5") == [23, 22, 2, 3, 4]


def test_rare_parts_in_fields_that_count_most_are_found_by_their_index(
    weighted_with_words: Searched,
) -> None:
    weighted_with_words.fill([*[PART_IN_BODY] * 30, *[PART] * 5])
    by_index = {"sample", "best", "whole", "parts"}
    assert word_scans(weighted_with_words, f"{QUERY}&limit=5") == by_index
    assert weighted_with_words.admin.column("id", f"{QUERY}&limit=5") == [31, 32, 33, 34, 35]
    assert word_scans(weighted_with_words, f"{QUERY}&limit=6") == {*by_index, "all"}


def test_rare_parts_are_not_ranked_where_all_fields_count_the_same(
    equal_with_words: Searched,
) -> None:
    equal_with_words.fill([*[DOG] * 30, PART, CATS[0], PART])
    by_index = {"sample", "best", "parts"}
    assert word_scans(equal_with_words, f"{QUERY}&limit=5") == by_index
    assert equal_with_words.admin.column("id", f"{QUERY}&limit=5") == [32, 31, 33]


def test_behind_parts_come_items_with_the_word_in_a_related_item(
    equal_with_owners: Searched,
) -> None:
    equal_with_owners.fill([{**DOG, "owner": 1}, PART])
    assert equal_with_owners.admin.column("id", f"{QUERY}&limit=5") == [2, 1]


def test_behind_items_with_parts_no_whole_words_are_looked_for(
    weighted_with_words: Searched,
) -> None:
    weighted_with_words.fill([CATS[0], *[PART] * 12])
    query = next_page(weighted_with_words, f"{QUERY}&limit=5")
    assert word_scans(weighted_with_words, query) == {"sample", "whole", "ordered"}
    assert weighted_with_words.admin.column("id", query) == [6, 7, 8, 9, 10]


def test_a_page_that_begins_behind_whole_words_goes_on_with_the_first_parts(
    equal_with_words: Searched,
) -> None:
    equal_with_words.fill([*[PART] * 20, *CATS[:3]])
    query = next_page(equal_with_words, f"{QUERY}&limit=2")
    assert word_scans(equal_with_words, query) == {"sample", "best", "ordered"}
    assert equal_with_words.admin.column("id", query) == [23, 1]


def test_short_parts_which_no_index_finds_are_read_in_order(equal_with_words: Searched) -> None:
    equal_with_words.fill([*[PART] * 20, {**PART, "title": "in CA"}])
    query = "search=ca&sort=_relevance&limit=5"
    assert word_scans(equal_with_words, query) == {"sample", "best", "ordered"}
    assert equal_with_words.admin.column("id", query) == [21, 1, 2, 3, 4]


def test_one_index_of_several_texts_finds_each_placing_of_a_few_words(
    weighted_with_words: Searched,
) -> None:
    index = rf"{re.escape('@> ARRAY')}\[[^]]*\]"
    both = rf"{index} AND regexp_split_to_array\([^@]*{index}"
    for words, is_each in (("cat+dog", True), ("cat+dog+cow", False)):
        printed = statement_of(weighted_with_words, f"search={words}&sort=_relevance")["statement"]
        _, whole = printed.split("system_whole AS")
        assert bool(re.search(both, whole)) == is_each


def test_items_with_each_word_as_a_whole_one_are_ranked_without_the_texts_that_count_least(
    weighted_with_words: Searched,
) -> None:
    printed = statement_of(weighted_with_words, "search=cat+dog&sort=_relevance")["statement"]
    _, whole, others = re.split("system_whole AS|SELECT \\* FROM system_whole", printed)[:3]
    for text, is_read in (("title", True), ("body", False)):
        assert (f'system_fold_unindexed(t0."{text}")' in whole) == is_read
        assert f'system_fold_unindexed(t0."{text}")' in others


def test_parts_of_several_words_are_ranked(equal_with_words: Searched) -> None:
    explained = statement_of(equal_with_words, "search=cat+dog&sort=_relevance")
    assert "system_parts" not in explained["statement"]


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
    """Which tables of the statement were read from a collection with indexes of words."""
    executed = set()
    name = "all"
    level = 0
    for line in plan_of(searched, query):
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith("CTE system_"):
            name = line.split("CTE system_")[1]
            level = indent
        elif indent <= level:
            name = "all"
        if f" on {searched.admin.name} " in line and "never executed" not in line:
            executed.add(name)
    return executed


def next_page(searched: Searched, query: str) -> str:
    """The query of the page behind the first one."""
    token = searched.admin.read(f"{query}&meta=next_cursor").body["meta"]["next_cursor"]
    return f"{query}&page[after]={token}"


def scanned(searched: Searched, query: str) -> list[bool]:
    """Whether each scan of the table in the plan of a read was executed."""
    scans = (line for line in plan_of(searched, query) if f" on {searched.admin.name} " in line)
    return ["never executed" not in line for line in scans]


def sampled_rows(searched: Searched, query: str) -> float:
    """How many rows the sample has, whose scan is the first of the plan."""
    first = next(line for line in plan_of(searched, query) if "Sample Scan" in line)
    return float(re.findall(r"rows=([\d.]+)", first)[0])


def plan_of(searched: Searched, query: str) -> list[str]:
    explained = statement_of(searched, query)
    with psycopg.connect(searched.dsn, cursor_factory=psycopg.RawCursor) as connection:
        statement = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {explained['statement']}"
        lines = connection.execute(statement.encode(), explained["parameters"]).fetchall()
    return [line for (line,) in lines]
