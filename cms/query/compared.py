"""The printer of the history of rows that fixed statements write: what they are is compared with what they were."""

from __future__ import annotations

from cms.fragment import Fragment, commas, fill, name, param, text
from cms.query.recorded import History, recorded, told
from cms.query.write import Arguments, cast_of
from cms.schema.model import Collection
from cms.schema.system import UNRECORDED

_DELTA = (
    "CASE WHEN now.was IS NULL THEN now.data ELSE (SELECT json_object_agg(e.key, e.value) FROM json_each(now.data) AS e"
    " WHERE e.value::text IS DISTINCT FROM (now.was -> e.key)::text AND e.key <> ALL ({0})) END"
)


def note_written(collection: Collection, arguments: Arguments, *, action: str) -> Fragment:
    """Print the history of rows that are named by their keys and by what they held before, null for new ones.

    The collection is one that keeps revisions.
    """
    now = fill(
        "SELECT {0}, old.was FROM {1} AS t0 JOIN unnest({2}, {3}) AS old (key, was) ON t0.{4} = old.key "
        "ORDER BY t0.{4}",
        commas(recorded(collection)),
        name(collection.name),
        arguments.column(0, cast_of(collection.key)),
        arguments.column(1, "json"),
        name(collection.key.name),
    )
    names = [field for owner, field in sorted(UNRECORDED) if owner == collection.name]
    rows = fill("SELECT now.*, {0} AS delta FROM now", fill(_DELTA, param(names, "text[]")))
    history = History(action, "rows.delta", only_when="rows.delta IS NOT NULL")
    steps = [("now", now), ("rows", rows), *told(collection, history, act=None, author=arguments.author())]
    queries = commas(fill("{0} AS ({1})", text(label), step) for label, step in steps)
    return fill("WITH {0} SELECT count(*) FROM rows", queries)
