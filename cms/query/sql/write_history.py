"""The printers of activity and revisions, for statements whose written rows are called `rows`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cms.fragment import Fragment, clause, commas, concat, fill, name, optional, param, quoted, text
from cms.query.sql.arguments import ArgumentSlots, key_cast
from cms.query.sql.columns import rows_of
from cms.query.sql.keys import key_equals, key_order, key_text
from cms.schema.model import Collection, Field, Kind
from cms.schema.system import system_table


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The records that an action leaves in the history.

    `delta` is the SQL of the revision's delta; without it there is no revision. `only_when` is the
    SQL condition for a revision. `nested` rows have a column `parent`: the revision of the write
    that they are part of.
    """

    action: str
    delta: str | None = None
    only_when: str | None = None
    nested: bool = False

    @classmethod
    def of_changes(cls, action: str, *, nested: bool = False) -> HistoryEntry:
        """Return the entry of rows with a column `delta`; where it is NULL there is no revision."""
        return cls(action, "rows.delta", only_when="rows.delta IS NOT NULL", nested=nested)


# Ids come from the sequences at once, so that activities and revisions need no join with their
# rows.
ACTIVITY = text("nextval('system_activity_id_seq')")
REVISION = text("nextval('system_revisions_id_seq')")
_INSERT_ACTIVITY = (
    'INSERT INTO system_activity (id, action, "user", ip, user_agent, origin, collection, item) '
    "SELECT rows.activity, {0}, {1}, {2}, rows.item FROM rows{3}"
)
_INSERT_REVISION = (
    "INSERT INTO system_revisions (id, activity, collection, item, data, delta{2}) "
    "SELECT rows.revision, rows.activity, {0}, rows.item, rows.data, {1}{3} FROM rows{4}"
)


class Step(NamedTuple):
    """A query of a WITH clause; later ones read its rows by its name."""

    name: str
    query: Fragment


def with_steps(steps: Iterable[Step], answer: Fragment) -> Fragment:
    """Print a statement of several steps, which PostgreSQL runs as one."""
    queries = [fill("{0} AS ({1})", text(step.name), step.query) for step in steps]
    return fill("WITH {0} {1}", commas(queries), answer)


def history_steps(
    collection: Collection, history: HistoryEntry, *, history_action: str | None, author: Fragment
) -> Iterable[Step]:
    """Yield the steps of a statement that write the history of its rows."""
    # The setting is None (no history), "activity" (who did what) or "all" (revisions as well).
    if not collection.accountability:
        return
    action = param(history_action or history.action, "text")
    collection_name = param(collection.name, "text")
    named = _names_items(collection)
    activities = clause(" WHERE ", named)
    yield Step("activities", fill(_INSERT_ACTIVITY, action, author, collection_name, activities))
    if history.delta and collection.accountability == "all":
        changed = [text(history.only_when)] if history.only_when else []
        condition = clause(" WHERE ", [*changed, *named], separator=" AND ")
        parent_column = optional(", parent", when=history.nested)
        parent = optional(", rows.parent", when=history.nested)
        delta = text(history.delta)
        query = fill(_INSERT_REVISION, collection_name, delta, parent_column, parent, condition)
        yield Step("revisions", query)


def _names_items(collection: Collection) -> list[Fragment]:
    """Print the condition of rows of a view, whose triggers may return them without a key.

    Such a write is refused once its statement is done.
    """
    return [text("rows.item IS NOT NULL")] if collection.kind is Kind.VIEW else []


def history_columns(collection: Collection) -> list[Fragment]:
    """Print the columns of a row (t0) for the history: its key, new ids, and the whole row."""
    columns = [concat(key_text(collection.key, "t0"), " AS item")]
    if collection.accountability:
        columns.append(concat(ACTIVITY, " AS activity"))
    if collection.accountability == "all":
        columns += [concat(REVISION, " AS revision"), concat(whole_row(collection), " AS data")]
    return columns


def whole_row(collection: Collection, *, masks: bool = False) -> Fragment:
    """Print the whole row (t0) as reads show it, without secrets; with `masks` they are masked."""
    columns = []
    for field in collection.columns:
        if masks or is_recorded(field):
            columns.append(fill("{0} AS {1}", read_value(field), name(field.name)))
    return fill("(SELECT row_to_json(d.*) FROM (SELECT {0}) AS d)", commas(columns))


def is_recorded(field: Field) -> bool:
    """Tell whether the history and events hold the values of a field: they hold no secrets."""
    return not (field.is_secret or field.name in system_table(field.collection).withheld_columns)


def read_value(field: Field) -> Fragment:
    """Print the value of a column of a row (t0) as reads show it; a key of several as an array."""
    if field.parts:
        return fill("json_build_array({0})", commas(map(read_value, field.parts)))
    return fill(field.json_sql, fill(field.type.value_sql, text(f"t0.{quoted(field.name)}")))


def tracked_columns(collection: Collection, columns: Sequence[Field]) -> list[Field]:
    """Return the columns that a write may change, of which the history compares the values.

    These are the written and the computed ones, and all where triggers may write others.
    """
    if collection.accountability != "all":
        return []
    written = {field.name for field in columns}
    tracked = []
    for field in collection.columns:
        # No secret gets into the history, not even as a change.
        if not is_recorded(field):
            continue
        is_generated = field.column is not None and field.column.is_generated
        if collection.has_side_effects or field.name in written or is_generated:
            tracked.append(field)
    return tracked


def delta_of(fields: list[Field]) -> Fragment:
    """Print the object of changed columns, NULL when nothing changed; `old.w0` … are old values."""
    if not fields:
        return text("NULL::json")
    # The new value is recorded as reads show it, but compared as it is stored.
    shape = "({0}, to_json({1}), {2} IS DISTINCT FROM {3})"
    entries = []
    for index, field in enumerate(fields):
        before = _compared(field, f"old.w{index}")
        after = _compared(field, f"t0.{quoted(field.name)}")
        entries.append(fill(shape, param(field.name, "text"), read_value(field), before, after))
    rows = (
        "(SELECT json_object_agg(d.name, d.value) FROM (VALUES {0}) AS d (name, value, "
        "changed) WHERE d.changed)"
    )
    return fill(rows, commas(entries))


def _compared(field: Field, column: str) -> Fragment:
    """Print a column for IS DISTINCT FROM; types without an equality are compared as text."""
    if not field.type.has_equality:
        column += "::text"
    return text(column)


# Rows that fixed statements write, compared before and after


# The object of members that have changed, as {"status": "active"}; all members of a row that is
# new, and NULL of one that has not changed: json_object_agg of no rows is NULL.
_DELTA = (
    "CASE WHEN now.was IS NULL THEN now.data ELSE (SELECT json_object_agg(e.key, e.value) FROM "
    "json_each(now.data) AS e"
    " WHERE e.value::text IS DISTINCT FROM (now.was -> e.key)::text AND e.key <> ALL ({0})) END"
)


def record_changes(collection: Collection, arguments: ArgumentSlots, *, action: str) -> Fragment:
    """Print the history of rows.

    The arguments are their keys and their contents before the write, null for new rows. The
    collection is one that keeps revisions.
    """
    now = fill(
        "SELECT {0}, old.was FROM {1} AS t0 JOIN unnest({2}, {3}) AS old (key, was) ON {4} "
        "ORDER BY {5}",
        commas(history_columns(collection)),
        rows_of(collection.name),
        arguments.column(0, key_cast(collection.key)),
        arguments.column(1, "json"),
        key_equals(collection.key, "t0", text("old.key")),
        key_order(collection.key, "t0"),
    )
    # Columns such as the moment of the last access change all the time; they make no revision by
    # themselves.
    names = sorted(system_table(collection.name).unrecorded_columns)
    rows = fill("SELECT now.*, {0} AS delta FROM now", fill(_DELTA, param(names, "text[]")))
    history = HistoryEntry.of_changes(action)
    steps = [
        Step("now", now),
        Step("rows", rows),
        *history_steps(collection, history, history_action=None, author=arguments.author()),
    ]
    return with_steps(steps, text("SELECT count(*) FROM rows"))
