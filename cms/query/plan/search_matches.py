"""The words of a search as tests of values, and the relevance of a row to sort by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cms.query.language.ast import RELEVANCE, SearchWord
from cms.query.plan.bindings import Placeholder
from cms.query.plan.read_plan import Relevance, SearchMatch, Value
from cms.schema.model import Field
from cms.schema.types.field_type import Search
from cms.schema.types.numbers import INTEGER
from cms.schema.types.texts import parse_text


def relevance(collection: str, values: Sequence[Value], words: Sequence[SearchWord]) -> Value:
    """Return how well a row fits the words, as a value to sort by."""
    matches = search_matches(values, words)
    return Value(Field(collection, RELEVANCE, INTEGER), relevance=Relevance(matches))


def search_matches(
    values: Sequence[Value], words: Sequence[SearchWord]
) -> tuple[tuple[SearchMatch, ...], ...]:
    """Return for each word its tests of the values, in their order."""
    return tuple(_matches_of_word(values, word) for word in words)


def _matches_of_word(values: Sequence[Value], word: SearchWord) -> tuple[SearchMatch, ...]:
    # One parameter for all texts, however many there are.
    text = Placeholder(word.text, parse_text, "search")
    return tuple(SearchMatch(value, _operand(value, word, text), word.is_short) for value in values)


def _operand(value: Value, word: SearchWord, text: Placeholder) -> Placeholder:
    if value.type.search is Search.CONTAINED:
        return text
    return Placeholder(word.text, partial(_parse_or_null, value.parse), "search")


def _parse_or_null(parse: Callable[[object], str], word: object) -> str | None:
    """Return the parsed word, or None for a word that is no value of the type and so equals none.

    As NULL it leaves the statement the same for every word.
    """
    try:
        return parse(word)
    except ValueError:
        return None


def has_search_index(value: Value) -> bool:
    """Tell whether an index finds the rows in which a value holds a word."""
    column = value.field.column
    if column is None:
        return False
    if value.type.search is Search.CONTAINED:
        return column.is_search_indexed
    return column.is_indexed or column.is_unique
