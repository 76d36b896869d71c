"""What a request runs under."""

from __future__ import annotations

from dataclasses import dataclass

from cms.access.policy import Actor
from cms.database.connections import Fetch
from cms.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Under what a request runs: the catalogue with its caches, the caller, and where to look things up meanwhile.

    That is the replica for reads, the primary for plans of writes, and the transaction for what is planned in one:
    it must not wait for a second connection while it holds its own.
    """

    snapshot: Snapshot
    actor: Actor
    fetch: Fetch
