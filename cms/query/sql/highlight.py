"""The columns behind an item that show where the words of a search are, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from cms import jsontext
from cms.fragment import Fragment, commas, concat, fill, join, param
from cms.html_texts import marked_whole, marked_words
from cms.query.plan.read_plan import Highlights, ReadPlan, SearchMatch
from cms.query.sql.expressions import expression, search_match, searched_text
from cms.schema.types.field_type import Search

# The text comes with the folds of its characters, by the function that the search compares with:
# only PostgreSQL knows the dictionary. The service knows the folds of ASCII letters itself.
_CHARACTERS = (
    "CASE WHEN octet_length({0}) <> length({0}) AND ({1}) THEN "
    "(SELECT json_object_agg(c, system_fold(c)) "
    "FROM (SELECT DISTINCT string_to_table({0}, NULL) AS c) AS letters WHERE octet_length(c) > 1) "
    "END"
)


def highlight_columns(highlights: Highlights | None) -> list[Fragment]:
    """Print the folded words, and for each field its text where it holds a word, with its folds."""
    if highlights is None or not highlights.fields:
        return []
    columns = [concat("ARRAY[", commas(_folded_words(highlights)), "]::text[]")]
    for matches in highlights.fields:
        columns += _columns_of_field(matches)
    return columns


def _folded_words(highlights: Highlights) -> Iterator[Fragment]:
    for matches in highlights.words:
        for match in matches:
            if _is_text(match):
                yield fill("system_fold({0})", param(match.word, "text"))
                break


def _columns_of_field(matches: Sequence[SearchMatch]) -> list[Fragment]:
    value = searched_text(matches[0].value, expression(matches[0].value, 0))
    # The condition of the search itself, without an index: none helps on single rows.
    tests = [search_match(replace(match, is_short=True), 0) for match in matches]
    has_word = join(" OR ", tests)
    matched_text = fill("CASE WHEN {0} THEN {1}::text END", has_word, value)
    if not _is_text(matches[0]):
        return [matched_text]
    return [matched_text, fill(_CHARACTERS, fill("({0})", value), has_word)]


def _is_text(match: SearchMatch) -> bool:
    return match.value.type.search is Search.CONTAINED


class HighlightedField(NamedTuple):
    """A field in which words are shown; a text has a second column, with its folds."""

    name: str
    is_text: bool


@dataclass(frozen=True, slots=True)
class HighlightReader:
    """Reads the columns of `highlight_columns`."""

    fields: tuple[HighlightedField, ...]

    @property
    def width(self) -> int:
        """The number of columns."""
        if not self.fields:
            return 0
        # The folded words come first.
        return 1 + sum(2 if field.is_text else 1 for field in self.fields)

    def read(self, columns: Sequence[Any]) -> dict[str, str]:
        """Return the fields in which a word is found, as HTML."""
        if not self.fields:
            return {}
        words, *rest = columns
        values = iter(rest)
        marked: dict[str, str] = {}
        for field in self.fields:
            value = next(values)
            folds = next(values) if field.is_text else None
            if value is None:
                continue
            if field.is_text:
                html = marked_words(value, words, _folds(folds))
            else:
                html = marked_whole(value)
            if html is not None:
                marked[field.name] = html
        return marked


def reader_of(plan: ReadPlan) -> HighlightReader | None:
    """Return the reader of a plan's highlights; None where it has none."""
    if plan.highlights is None:
        return None
    fields = []
    for matches in plan.highlights.fields:
        # All of them are matches of one field, each of another word.
        match = matches[0]
        fields.append(HighlightedField(match.value.field.name, _is_text(match)))
    return HighlightReader(tuple(fields))


def _folds(column: object) -> Mapping[str, str]:
    """Return the folds of characters; JSON comes from the database as text for answers."""
    if column is None:
        return {}
    return cast(Mapping[str, str], jsontext.loads(jsontext.dumps(column)))
