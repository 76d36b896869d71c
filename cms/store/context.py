"""What each request carries to the functions that do its work."""

from __future__ import annotations

from dataclasses import dataclass

from cms.access.policy import Actor
from cms.database.connections import Fetch
from cms.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The catalogue with its caches, the caller, and what fetches rows for the plan of the request.

    `fetch` asks the replica for reads and the primary for plans of writes. A plan that is made
    within a transaction asks that one: it must not wait for a second connection while it holds
    its own.
    """

    snapshot: Snapshot
    actor: Actor
    fetch: Fetch
