"""The best that the words of a search can fit: each is a whole word in a field that counts most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from cms.query.plan.read_plan import (
    All,
    AnyOf,
    PartRows,
    Predicate,
    Relevance,
    SearchMatch,
    Value,
)
from cms.schema.types.field_type import Search

WHOLE_WORD = 1_000_000
"""What a whole word counts: more than parts of all words in the fields that count most."""

MAX_READS = 4
"""How often the index of words may be read for one word: two words in four texts, or three in two.

A list is read for each placing of the other words. Eight times took longer than to keep it once.
"""


def best_matches(words: Sequence[Sequence[SearchMatch]]) -> Predicate | None:
    """Return which rows fit best, of the tests of each word; None where no index finds them."""
    best: list[Predicate] = []
    for matches in words:
        heaviest = _heaviest(matches)
        if not heaviest or not all(map(_has_index, heaviest)):
            return None
        best.append(AnyOf(heaviest))
    return All(tuple(best))


def best_by_words(words: Sequence[Sequence[SearchMatch]]) -> Predicate | None:
    """Return which rows fit best, as indexes of words find them; None where these are missing."""
    return _by_words(list(map(_heaviest, words)))


def whole_matches(words: Sequence[Sequence[SearchMatch]]) -> Predicate | None:
    """Return which rows have each word as a whole one, in whichever field.

    None where not each field has an index of words, or where these rows are the best.
    """
    if all(len(_heaviest(matches)) == len(matches) for matches in words):
        return None
    return _by_words(words)


def _by_words(words: Sequence[Sequence[SearchMatch]]) -> Predicate | None:
    by_index: list[tuple[SearchMatch, ...]] = []
    for matches in words:
        if not matches or not all(map(_has_word_index, matches)):
            return None
        tests = [replace(match, is_whole=True, by_word_index=True) for match in matches]
        by_index.append(tuple(tests))
    each_word = All(tuple(map(AnyOf, by_index)))
    placings = _placings(by_index)
    if not placings:
        return each_word
    values = [match for matches in by_index for match in matches if not _is_text(match)]
    if values:
        # Where no word is a number or a UUID, PostgreSQL leaves this out.
        placings.append(All((AnyOf(tuple(values)), each_word)))
    return AnyOf(tuple(placings))


def _placings(words: Sequence[Sequence[SearchMatch]]) -> list[Predicate]:
    """Return in which texts each word may stand; nothing where one index does not have these texts.

    Such an index finds each placing by stepping through the lists of all words at once. Otherwise
    the whole list of a word in a text is read, however long it is.
    """
    texts = [tuple(filter(_is_text, matches)) for matches in words]
    names = {match.value.field.column and match.value.field.column.word_index for match in texts[0]}
    reads = prod(map(len, texts[1:]))
    if len(words) == 1 or len(names) != 1 or reads > MAX_READS:
        return []
    return [All(placing) for placing in product(*texts)]


def _is_text(match: SearchMatch) -> bool:
    return match.value.type.search is Search.CONTAINED


def part_rows(
    words: Sequence[Sequence[SearchMatch]],
    *,
    searched: Callable[[Predicate], Predicate],
    has_related: bool,
) -> PartRows | None:
    """Return the rows that come behind those with a whole word; None for several words.

    None also where a field has no index of words: without it all rows with parts would be read to
    know which have the whole word. `searched` adds the other conditions of the query; with
    `has_related`, words may be in related items.
    """
    if len(words) != 1 or _by_words(words) is None:
        return None
    texts = list(filter(_is_text, words[0]))
    heaviest = [replace(match, is_whole=False) for match in _heaviest(texts)]
    if not heaviest:
        return None
    compared = [replace(match, is_compared=True) for match in heaviest]
    by_index = None
    if all(map(_finds_parts, heaviest)):
        by_index = searched(AnyOf(tuple(heaviest)))
    return PartRows(
        searched(AnyOf(tuple(compared))),
        by_index,
        _greatest_weight(texts),
        are_all=len(heaviest) == len(texts) and not has_related,
    )


def best_relevance(relevance: Relevance) -> int:
    """Return what the rows count that fit best."""
    return sum(WHOLE_WORD + _greatest_weight(matches) for matches in relevance.words)


def _heaviest(matches: Sequence[SearchMatch]) -> tuple[SearchMatch, ...]:
    """Return the tests of the fields that count most: the word must stand there as a whole."""
    weight = _greatest_weight(matches)
    heaviest: list[SearchMatch] = []
    for match in matches:
        if match.value.field.search_weight == weight:
            heaviest.append(replace(match, is_whole=True))
    return tuple(heaviest)


def heaviest_first(matches: Sequence[SearchMatch]) -> list[tuple[int, Predicate]]:
    """Return the weights of fields, and that a word is a whole one in a field of this weight."""
    weights = sorted({match.value.field.search_weight for match in matches}, reverse=True)
    tests: list[tuple[int, Predicate]] = []
    for weight in weights:
        alike = [match for match in matches if match.value.field.search_weight == weight]
        compared = [replace(match, is_whole=True, is_compared=True) for match in alike]
        tests.append((weight, AnyOf(tuple(compared))))
    return tests


def _greatest_weight(matches: Sequence[SearchMatch]) -> int:
    return max((match.value.field.search_weight for match in matches), default=0)


def _has_index(match: SearchMatch) -> bool:
    return has_search_index(match.value) or _has_word_index(match)


def _finds_parts(match: SearchMatch) -> bool:
    """Tell whether an index finds the rows in which a text holds the word."""
    return has_search_index(match.value) and not match.is_short


def _has_word_index(match: SearchMatch) -> bool:
    """Tell whether an index finds the rows in which a value is a word, or has it as a whole one."""
    column = match.value.field.column
    if column is None:
        return False
    if _is_text(match):
        return match.is_plain and column.word_index is not None
    return column.is_indexed or column.is_unique or column.is_primary_key


def has_search_index(value: Value) -> bool:
    """Tell whether an index finds the rows in which a value holds a word."""
    column = value.field.column
    if column is None:
        return False
    if value.type.search is Search.CONTAINED:
        return column.is_search_indexed
    return column.is_indexed or column.is_unique
