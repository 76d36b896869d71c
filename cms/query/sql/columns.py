"""The printers of tables and columns, of the keys of links, and of texts that never change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from cms.caches import bounded_cache
from cms.fragment import Fragment, commas, concat, fill, join, name, param, quoted, text
from cms.query.language.ast import Constant
from cms.query.plan.bindings import Placeholder, unchanged
from cms.query.plan.links import Link
from cms.query.sql.keys import key_columns, key_text
from cms.schema.model import Field
from cms.schema.types import TYPES

_MAX_LIST_BYTES = 2**23
# As large as the lists of many requests: a list may stand in one statement more than once.
_lists = bounded_cache(_MAX_LIST_BYTES)


@lru_cache(maxsize=1024)  # texts come from the structure alone
def constant_text(value: str) -> Placeholder:
    """Return one placeholder for a text, however often it is printed.

    Otherwise PostgreSQL would not see that an expression of GROUP BY is the one of SELECT.
    """
    return Placeholder(Constant(value), str, "")


def text_list(values: tuple[str, ...]) -> Placeholder:
    """Return one placeholder for a list of texts."""
    placeholder: Placeholder = _lists.setdefault_with(
        values, lambda: Placeholder(Constant(values), unchanged, "")
    )
    return placeholder


def alias(level: int) -> str:
    return f"t{level}"


def rows_of(collection: str) -> Fragment:
    """Print the rows that a collection has, for statements that read them: its table.

    Writes and locks name the table itself.
    """
    return name(collection)


def column_of(field: Field, level: int) -> Fragment:
    return fill(field.type.value_sql, stored_column(field, level))


def stored_column(field: Field, level: int) -> Fragment:
    """Print a column as it is stored, or the text of a key of several columns."""
    if field.parts:
        return key_text(field, alias(level))
    return text(f"{alias(level)}.{quoted(field.name)}")


def numbered_outputs(values: Iterable[Fragment]) -> list[Fragment]:
    """Print values under the names c0, c1 …"""
    return [concat(value, f" AS c{number}") for number, value in enumerate(values)]


def numbered_rows(arrays: Sequence[Fragment]) -> Fragment:
    """Print rows r (c0 …, n) of an array for each column, and the number of the row from 1."""
    labels = "".join(f"c{number}, " for number in range(len(arrays)))
    return fill("unnest({0}) WITH ORDINALITY AS r ({1}n)", commas(arrays), text(labels))


def output_columns(row: str, count: int) -> Fragment:
    """Print the columns c0, c1 … of a row; without any there is a NULL in their place."""
    if count == 0:
        return text("NULL")
    return commas(text(f"{row}.c{number}") for number in range(count))


# Links: which columns of two rows are equal


KEY_PATTERNS = {
    field_type.cast: field_type.key_pattern
    for field_type in TYPES.values()
    if field_type.key_pattern is not None
}
"""The form of keys by their cast; a key of another form belongs to no item and breaks the cast."""


def key_condition(link: Link, level: int) -> Fragment:
    """Print which columns of the two rows are equal."""
    # "t1"."id" = "t0"."author" for the author of an article; each level has the alias of its
    # number.
    if link.collection_field is None or link.cast is None:
        far = key_columns(link.far, alias(level + 1))
        near = key_columns(link.near, alias(level))
        pairs = zip(far, near, strict=True)
        return join(" AND ", (concat(column, " = ", other) for column, other in pairs))
    if link.named_collection is not None:
        key = stored_column(link.far, level + 1)
        return _named_key(link, link.near, level, key=key, key_level=level + 1)
    key = stored_column(link.near, level)
    return _named_key(link, link.far, level + 1, key=key, key_level=level)


def _named_key(link: Link, target: Field, level: int, *, key: Fragment, key_level: int) -> Fragment:
    """Print that the row at `key_level`, of a many-to-any relation, names the row at `level`."""
    # Only keys of this target are cast: a key of another collection could have a form that fails.
    # For instance: t1."id" = CASE WHEN t0."collection" = 'headings' AND t0."item"::text ~ '^…$'
    # THEN t0."item"::text::uuid END. A CASE is evaluated in order; the two sides of an AND need not
    # be.
    shape = "{0} = CASE WHEN {1} = {2} AND {3}::text ~ {4} THEN {3}::text::{5} END"
    cast = str(link.cast)
    column = key_text(target, alias(level)) if cast == "text" else stored_column(target, level)
    return fill(
        shape,
        column,
        text(f"{alias(key_level)}.{quoted(str(link.collection_field))}"),
        param(constant_text(link.named_collection or link.target), "text"),
        key,
        param(constant_text(KEY_PATTERNS[cast]), "text"),
        text(cast),
    )
