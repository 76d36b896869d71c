"""The printer of links: which columns of two rows are equal."""

from __future__ import annotations

from cms.fragment import Fragment, fill, param, quoted, text
from cms.query.plan.links import Link
from cms.query.sql.columns import alias
from cms.query.sql.constants import constant_text
from cms.schema.types import TYPES

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
    far = f"{alias(level + 1)}.{quoted(link.far)}"
    near = f"{alias(level)}.{quoted(link.near)}"
    if link.collection_field is None or link.cast is None:
        return text(f"{far} = {near}")
    if link.named_collection is not None:
        return _named_key(link, near, key=far, level=level + 1)
    return _named_key(link, far, key=near, level=level)


def _named_key(link: Link, target: str, *, key: str, level: int) -> Fragment:
    """Print that the row at a level, of a many-to-any relation, names the row of the target."""
    # Only keys of this target are cast: a key of another collection could have a form that fails.
    # For instance: t1."id" = CASE WHEN t0."collection" = 'headings' AND t0."item"::text ~ '^…$'
    # THEN t0."item"::text::uuid END. A CASE is evaluated in order; the two sides of an AND need not
    # be.
    shape = "{0} = CASE WHEN {1} = {2} AND {3}::text ~ {4} THEN {3}::text::{5} END"
    cast = str(link.cast)
    return fill(
        shape,
        text(f"{target}::text" if cast == "text" else target),
        text(f"{alias(level)}.{quoted(str(link.collection_field))}"),
        param(constant_text(link.named_collection or link.target), "text"),
        text(key),
        param(constant_text(KEY_PATTERNS[cast]), "text"),
        text(cast),
    )
