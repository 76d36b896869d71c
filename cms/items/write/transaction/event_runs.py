"""Runs of flows that wait for the events of a write: they are queued with the write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms import jsontext
from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.items.write.transaction.executor import Executor
from cms.query.sql.arguments import FlowsByVerb
from cms.schema.model import Collection
from cms.schema.system import FILES, event_name
from cms.store.context import RequestContext
from cms.store.event_flows import CollectionEvents
from cms.store.identity import ClientInfo

Accountability = Mapping[str, str | None]
"""User, role and address of the caller who causes a run."""


def flows_after(
    events: CollectionEvents, client: ClientInfo, collection: Collection, *, verb: str
) -> FlowsByVerb:
    """Return the flows that a write of items causes to run after it."""
    # A write without a depth causes no runs.
    if client.depth is None:
        return ()
    flows: list[tuple[str, tuple[str, ...]]] = []
    for event_verb in event_verbs(collection, verb):
        ids = events.actions(event_verb)
        if ids:
            flows.append((event_verb, ids))
    return tuple(flows)


def event_verbs(collection: Collection, verb: str) -> tuple[str, ...]:
    """Return the verbs of the events that a write is; of files, a creation is an upload, too."""
    if collection.name == FILES and verb == "create":
        return (verb, "upload")
    return (verb,)


def has_filter(events: CollectionEvents, collection: Collection, verb: str) -> bool:
    """Tell whether any filter flow waits for the event of a write."""
    return any(events.filters(event_verb) for event_verb in event_verbs(collection, verb))


def cause_literals(context: RequestContext, client: ClientInfo) -> tuple[object, ...]:
    """Return the literals of `ArgumentSlots`: depth and accountability of the runs of flows."""
    accountability = jsontext.dumps(accountability_of(context, client)).decode()
    return client.depth, accountability


def queue_event_runs(
    executor: Executor, collection: Collection, *, verb: str, data: Mapping[str, object]
) -> None:
    """Queue the runs that a write of several statements causes; `data` say more of the event."""
    queue_runs_after(
        executor.transaction.execute,
        executor.context,
        executor.client,
        collection,
        verb=verb,
        data=data,
    )


def queue_runs_after(
    fetch: Fetch,
    context: RequestContext,
    client: ClientInfo,
    collection: Collection,
    *,
    verb: str,
    data: Mapping[str, object],
) -> None:
    """Queue the runs that a change causes, as `queue_event_runs` does."""
    events = context.snapshot.events.of(collection.name)
    flows_by_verb = flows_after(events, client, collection, verb=verb)
    if not flows_by_verb:
        return
    depth, accountability = cause_literals(context, client)
    for event_verb, flows in flows_by_verb:
        event = {"event": event_name(collection.name, event_verb), "collection": collection.name}
        # {"event": "items.create", "collection": "articles", "keys": [1], "payload": {…}}
        trigger = jsontext.dumps({**event, **data}).decode()
        for flow in flows:
            arguments = (flow, [trigger], "event", accountability, depth)
            fetch(statement("queue_runs"), arguments)


def accountability_of(context: RequestContext, client: ClientInfo) -> Accountability | None:
    """Return who causes a run of a flow; None is the service itself."""
    actor = context.actor
    # Nobody but the service itself has all rights without a user or a role.
    if actor.policy.is_admin and actor.user is None and actor.role is None:
        return None
    return {"user": actor.user, "role": actor.role, "ip": client.ip}


def json_keys(collection: Collection, keys: Sequence[str]) -> list[object]:
    """Return keys as reads show them: numbers as numbers."""
    return [collection.key.type.read_default(key) for key in keys]
