"""The page of an app that a user has opened last (docs/permissions.md)."""

from __future__ import annotations

from cms.database.statements import statement
from cms.items.read.reads import require_own_user, require_user
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import Write


def set_last_page(
    store: Store, identity: Identity, page: str, *, idempotency: Idempotency | None = None
) -> None:
    """Set `last_page` of the current user, which leaves no trace in the history."""
    require_user(identity)
    write: Write[None] = store.write(identity, idempotency=idempotency)
    for attempt in write:
        with attempt as context:
            require_own_user(context)
            transaction = attempt.begin_transaction()
            transaction.execute(statement("set_last_page"), (context.actor.user, page))
