"""The context that each request passes to the functions that do its work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cms.access.policy import Actor
from cms.database.connections import Fetch
from cms.database.reader import Reader
from cms.query.plan.bindings import Bindings
from cms.store.identity import ANONYMOUS, Identity
from cms.store.snapshot import Snapshot


class RequestContext(NamedTuple):
    """The catalogue with its caches, the caller, and the function that fetches rows for the plan.

    `fetch` asks where the work is done. For a plan that is made within a transaction it uses the
    connection of the transaction: waiting for a second connection while holding the first could
    last for ever. `reader` is there for reads, and runs their statements on the same server.
    `identity` is what the request says of its caller.
    """

    snapshot: Snapshot
    actor: Actor
    fetch: Fetch
    reader: Reader | None = None
    identity: Identity = ANONYMOUS

    @property
    def reads(self) -> Reader:
        """The reader of a read."""
        assert self.reader, "this is a write"
        return self.reader

    def bindings(self, literals: Sequence[object] = ()) -> Bindings:
        """Return the values for the placeholders of a statement: the literals, and the caller."""
        return Bindings(literals, self.actor.user, self.actor.role)
