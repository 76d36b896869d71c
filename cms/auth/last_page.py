"""The page of an app that a user has opened last (docs/permissions.md)."""

from __future__ import annotations

from functools import partial

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.items.read.reads import require_own_user, require_user
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store


def set_last_page(
    store: Store, identity: Identity, page: str, *, idempotency: Idempotency | None = None
) -> None:
    """Set `last_page` of the current user, which leaves no trace in the history."""
    require_user(identity)
    store.run_in_transaction(identity, partial(_set, page=page), idempotency=idempotency)


def _set(transaction: Transaction, context: RequestContext, *, page: str) -> None:
    require_own_user(context)
    transaction.execute(statement("set_last_page"), (context.actor.user, page))
