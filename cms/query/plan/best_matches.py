"""The best that the words of a search can fit: each is a whole word in a field that counts most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cms.query.plan.resolved import All, AnyOf, Predicate, Relevance, SearchMatch, Value
from cms.schema.types.field_type import Search

WHOLE_WORD = 1_000_000
"""What a whole word counts: more than parts of all words in the fields that count most."""


def best_matches(words: Sequence[Sequence[SearchMatch]]) -> Predicate | None:
    """Return which rows fit best, of the places of each word; None where no index finds them."""
    best = tuple(map(_heaviest, words))
    if not all(
        places and all(has_search_index(match.value) for match in places) for places in best
    ):
        return None
    return All(tuple(AnyOf(places) for places in best))


def best_relevance(relevance: Relevance) -> int:
    """Return what the rows count that fit best."""
    return sum(WHOLE_WORD + _greatest_weight(places) for places in relevance.words)


def _heaviest(places: Sequence[SearchMatch]) -> tuple[SearchMatch, ...]:
    weight = _greatest_weight(places)
    heaviest = (match for match in places if match.value.field.search_weight == weight)
    return tuple(replace(match, is_whole=True) for match in heaviest)


def _greatest_weight(places: Sequence[SearchMatch]) -> int:
    return max((match.value.field.search_weight for match in places), default=0)


def has_search_index(value: Value) -> bool:
    """Tell whether an index finds the rows in which a value holds a word."""
    column = value.field.column
    if column is None:
        return False
    if value.type.search is Search.CONTAINED:
        return column.is_search_indexed
    return column.is_indexed or column.is_unique
