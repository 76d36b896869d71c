"""What the history takes of written rows: printers of activity and revisions, for statements that call them `rows`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cms.fragment import EMPTY, Fragment, commas, concat, fill, name, param, quoted, text
from cms.schema.model import Collection, Field
from cms.schema.types import Family


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What an action leaves: the delta of its revision as SQL (no revision without one), and when there is one.

    `nested` rows have a column `parent`, the revision of the write that they are part of.
    """

    action: str
    delta: str | None = None
    only_when: str | None = None
    nested: bool = False


ACTIVITY = text("nextval('system_activity_id_seq')")
REVISION = text("nextval('system_revisions_id_seq')")
_INSERT_ACTIVITY = (
    'INSERT INTO system_activity (id, action, "user", ip, user_agent, origin, collection, item) '
    "SELECT rows.activity, {0}, {1}, {2}, rows.item FROM rows"
)
_INSERT_REVISION = (
    "INSERT INTO system_revisions (id, activity, collection, item, data, delta{2}) "
    "SELECT rows.revision, rows.activity, {0}, rows.item, rows.data, {1}{3} FROM rows{4}"
)


def history_steps(
    collection: Collection, history: HistoryEntry, *, history_action: str | None, author: Fragment
) -> Iterable[tuple[str, Fragment]]:
    """Yield the steps of a statement that write the history of its rows."""
    if not collection.accountability:
        return
    action, place = param(history_action or history.action, "text"), param(collection.name, "text")
    yield "activities", fill(_INSERT_ACTIVITY, action, author, place)
    if history.delta and collection.accountability == "all":
        condition = text(f" WHERE {history.only_when}" if history.only_when else "")
        parent = (text(", parent"), text(", rows.parent")) if history.nested else (EMPTY, EMPTY)
        yield "revisions", fill(_INSERT_REVISION, place, text(history.delta), *parent, condition)


def history_columns(collection: Collection) -> list[Fragment]:
    """Print what a row (t0) is asked for: its key, and what the history takes of it."""
    columns = [fill("t0.{0}::text AS item", name(collection.key.name))]
    if collection.accountability:
        columns.append(concat(ACTIVITY, " AS activity"))
    if collection.accountability == "all":
        columns += [concat(REVISION, " AS revision"), concat(whole_row(collection), " AS data")]
    return columns


def whole_row(collection: Collection, *, masks: bool = False) -> Fragment:
    """Print the whole row (t0) as the history keeps it: as reads show it, and never a secret."""
    kept = [found for found in collection.columns if masks or not found.is_secret]
    shown = commas(fill("{0} AS {1}", _shown(found), name(found.name)) for found in kept)
    return fill("(SELECT row_to_json(d.*) FROM (SELECT {0}) AS d)", shown)


def _shown(found: Field) -> Fragment:
    return fill(found.show, fill(found.value, text(f"t0.{quoted(found.name)}")))


def tracked_columns(collection: Collection, columns: Sequence[Field]) -> list[Field]:
    """Return the columns that may change: those that are written and computed, all where the database does more."""
    if collection.accountability != "all":
        return []
    written = {found.name for found in columns}
    return [
        found
        for found in collection.columns
        if not found.is_secret
        and (
            collection.has_side_effects
            or found.name in written
            or (found.column and found.column.is_generated)
        )
    ]


def delta_of(fields: list[Field]) -> Fragment:
    """Print what changed, or NULL when nothing did."""
    if not fields:
        return text("NULL::json")
    shape = "({0}, to_json({1}), {2} IS DISTINCT FROM {3})"
    entries = (
        fill(
            shape,
            param(found.name, "text"),
            _shown(found),
            _compared(found, f"old.w{place}"),
            _compared(found),
        )
        for place, found in enumerate(fields)
    )
    rows = "(SELECT json_object_agg(d.name, d.value) FROM (VALUES {0}) AS d (name, value, changed) WHERE d.changed)"
    return fill(rows, commas(entries))


def _compared(found: Field, column: str | None = None) -> Fragment:
    """Types without an equality of their own are compared as text."""
    plain = not found.is_text_form and found.type.family not in (Family.JSON, Family.GEOMETRY)
    return text((column or f"t0.{quoted(found.name)}") + ("" if plain else "::text"))
