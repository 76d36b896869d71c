"""The printers of runs of flows, for statements whose written rows are called `rows`.

Runs and their jobs are steps of such a statement, so that a write stays one statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cms.fragment import EMPTY, Fragment, commas, fill, param, text
from cms.query.sql.arguments import ArgumentSlots, key_cast
from cms.query.sql.columns import rows_of
from cms.query.sql.keys import key_is_any, key_order
from cms.query.sql.write_history import Step, is_recorded, read_value, whole_row, with_steps
from cms.schema.model import Collection, Field
from cms.schema.system import event_name

_INSERT_RUNS = (
    "INSERT INTO system_flow_runs (flow, trigger, depth, input, accountability) "
    "SELECT {0}, 'event', {1}, json_build_object('event', {2}, 'collection', {3}, "
    "'payload', event.payload, {4}, event.keys), {5} FROM ({6}) AS event{7} RETURNING id"
)
# What joins several flows to each event.
_EACH_FLOW = " CROSS JOIN unnest({0}) WITH ORDINALITY AS flow (id, number) ORDER BY flow.number"
# The same as `procrastinate_defer_jobs_v1`: as a step of the statement it takes half the time.
_INSERT_JOBS = (
    "INSERT INTO procrastinate_jobs (queue_name, task_name, args) "
    "SELECT 'flow', 'flow', jsonb_build_object('payload', jsonb_build_object('run', runs.id)) "
    "FROM {0} AS runs"
)
_INSERT_CREATION_RUNS = (
    "INSERT INTO system_flow_runs (flow, trigger, input, accountability) "
    "SELECT flow.id, 'event', json_build_object('event', {0}, 'collection', {1}, "
    "'payload', {2}, 'key', {3}), (SELECT json_build_object('user', id, 'role', role, 'ip', {4}) "
    "FROM system_users WHERE id = {5}) FROM {6} AS t0 CROSS JOIN system_flows AS flow "
    "WHERE {7} AND flow.status = 'active' AND flow.trigger = 'event' "
    "AND flow.options ->> 'type' = 'action' AND (flow.options -> 'scope')::jsonb ? {0} "
    "ORDER BY {8}, flow.date_created, flow.id RETURNING id"
)
# Each new item is an event of its own.
_NEW_ROWS = "SELECT rows.key_value AS keys, rows.data AS payload FROM rows"
_EVENTS = {
    "create": _NEW_ROWS,
    "upload": _NEW_ROWS,
    # Items that get the same values are one event.
    "update": (
        "SELECT json_agg(rows.key_value) AS keys, (array_agg(rows.payload))[1] AS payload "
        "FROM rows GROUP BY rows.payload::text"
    ),
    "delete": (
        "SELECT json_agg(rows.key_value) AS keys, json_agg(rows.key_value) AS payload "
        "FROM rows HAVING count(*) > 0"
    ),
}


def event_columns(
    collection: Collection, arguments: ArgumentSlots, columns: Sequence[Field] | None
) -> list[Fragment]:
    """Print the columns of a row (t0) for its event: its key, and its values.

    `columns` are those that an update writes; None stands for all of them. Secrets are left out.
    """
    if not arguments.flows:
        return []
    key = fill("to_json({0}) AS key_value", read_value(collection.key))
    if columns is None:
        # The history has the whole row already, as `data`.
        if collection.accountability == "all":
            return [key]
        return [key, fill("{0} AS data", whole_row(collection))]
    entries = []
    for field in columns:
        if is_recorded(field):
            entries.append(fill("{0}, {1}", param(field.name, "text"), read_value(field)))
    return [key, fill("json_build_object({0}) AS payload", commas(entries))]


def event_steps(collection: Collection, arguments: ArgumentSlots) -> Iterable[Step]:
    """Yield the steps of a statement that queue a run of each flow for its event."""
    for verb, flows in arguments.flows:
        flow = param(flows[0], "uuid")
        join = EMPTY
        if len(flows) > 1:
            flow = text("flow.id")
            join = fill(_EACH_FLOW, param(list(flows), "uuid[]"))
        query = fill(
            _INSERT_RUNS,
            flow,
            arguments.depth(),
            param(event_name(collection.name, verb), "text"),
            param(collection.name, "text"),
            text("'keys'" if verb in ("update", "delete") else "'key'"),
            arguments.accountability(),
            text(_EVENTS[verb]),
            join,
        )
        runs = f"runs_after_{verb}"
        yield Step(runs, query)
        yield Step(f"jobs_after_{verb}", fill(_INSERT_JOBS, text(runs)))


def creation_runs(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print a statement that queues runs for new rows that fixed statements have written.

    It finds the flows itself. Its literals are the author and an array of keys; a row without an
    author is the service's own.
    """
    key = collection.key
    runs = fill(
        _INSERT_CREATION_RUNS,
        param(event_name(collection.name, "create"), "text"),
        param(collection.name, "text"),
        whole_row(collection),
        read_value(key),
        arguments.address(),
        arguments.user(),
        rows_of(collection.name),
        key_is_any(key, "t0", arguments.column(0, key_cast(key))),
        key_order(key, "t0"),
    )
    jobs = fill(_INSERT_JOBS, text("runs"))
    return with_steps([Step("runs", runs)], jobs)
