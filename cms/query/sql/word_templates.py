"""The SQL of words in texts: as parts, as whole words, and as an index of words finds them."""

from __future__ import annotations

from cms.fragment import Fragment, fill
from cms.query.plan.read_plan import SearchMatch, Value
from cms.schema.types.field_type import DETERMINISTIC, WORDS_SQL

FAST_FOLD = "system_fold_unindexed"

# Folding can turn a character into a metacharacter (those of full width), so the word is escaped
# after it.
CONTAINS = "{0} LIKE '%' || regexp_replace(system_fold({1}), '([\\\\%_])', '\\\\\\1', 'g') || '%'"
HAS_WHOLE = (
    "{0} ~ ('(^|\\W)' || regexp_replace(system_fold({1}), '([][(){}.*+?^$|\\\\-])', '\\\\\\1', 'g')"
    " || '(\\W|$)')"
)
# The first part of it is there to save time: it takes a tenth of that of a regular expression.
# PostgreSQL takes `<> 0` for true of nearly every row, so that it expects as many rows as the
# expression finds.
_HOLDS = "strpos({0}, system_fold({1})) <> 0"
_IS_WHOLE = f"({_HOLDS} AND {HAS_WHOLE})"


# As the index has it. Where none is read, this takes ten times as long as the comparison above.
_IS_INDEXED_WORD = f"{WORDS_SQL} @> ARRAY[system_fold({{1}})]"


def searched_text(value: Value, column: Fragment) -> Fragment:
    """Print a text under a collation that knows LIKE and regular expressions."""
    if value.field.column is not None and value.field.column.is_nondeterministic:
        return fill(DETERMINISTIC, column)
    return column


def shape_of_match(match: SearchMatch) -> str:
    """Return the template of a test, of a folded text and a word."""
    if match.by_word_index:
        return _IS_INDEXED_WORD
    if match.is_whole:
        return _IS_WHOLE
    return _HOLDS if match.is_compared else CONTAINS


def fold_function(match: SearchMatch) -> str:
    """Return the function that folds a text as the index has it, or faster where none helps."""
    column = match.value.field.column
    if match.is_compared:
        return FAST_FOLD
    if column is not None and column.is_search_indexed and not match.is_short:
        return "system_fold"
    return "system_fold" if match.by_word_index else FAST_FOLD
