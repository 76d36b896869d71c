"""The best that the words of a search can fit: each is a whole word in a field that counts most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cms.query.plan.read_plan import All, AnyOf, Predicate, Relevance, SearchMatch, Value
from cms.schema.types.field_type import Search

WHOLE_WORD = 1_000_000
"""What a whole word counts: more than parts of all words in the fields that count most."""


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
    conditions: list[Predicate] = []
    for matches in words:
        if not matches or not all(map(_has_word_index, matches)):
            return None
        by_index = [replace(match, is_whole=True, by_word_index=True) for match in matches]
        conditions.append(AnyOf(tuple(by_index)))
    return All(tuple(conditions))


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


def _greatest_weight(matches: Sequence[SearchMatch]) -> int:
    return max((match.value.field.search_weight for match in matches), default=0)


def _has_index(match: SearchMatch) -> bool:
    return has_search_index(match.value) or _has_word_index(match)


def _has_word_index(match: SearchMatch) -> bool:
    """Tell whether an index finds the rows in which a value is a word, or has it as a whole one."""
    column = match.value.field.column
    if column is None:
        return False
    if match.value.type.search is Search.CONTAINED:
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
