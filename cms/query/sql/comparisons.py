"""The printer of history for fixed statements: their rows, compared before and after."""

from __future__ import annotations

from cms.fragment import Fragment, commas, fill, name, param, text
from cms.query.sql.arguments import ArgumentSlots, key_cast
from cms.query.sql.columns import rows_of
from cms.query.sql.write_history import (
    HistoryEntry,
    Step,
    history_columns,
    history_steps,
    with_steps,
)
from cms.schema.model import Collection
from cms.schema.system import system_table

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
        "SELECT {0}, old.was FROM {1} AS t0 JOIN unnest({2}, {3}) AS old (key, was) ON t0.{4} = "
        "old.key "
        "ORDER BY t0.{4}",
        commas(history_columns(collection)),
        rows_of(collection.name),
        arguments.column(0, key_cast(collection.key)),
        arguments.column(1, "json"),
        name(collection.key.name),
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
