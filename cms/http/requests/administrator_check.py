"""Tells whether an administrator calls, for routes that give others a shorter answer."""

from __future__ import annotations

from cms.database.error_mapping import Stale, UnexpectedError
from cms.errors import Refused
from cms.http.requests.request import Request
from cms.store.store import Store


def is_administrator(store: Store, request: Request) -> bool:
    """Tell whether an administrator calls; False for credentials that are no good."""
    try:
        identity = request.identity
        # Most calls come from load balancers, whose calls need no lookup of the caller.
        if identity.is_anonymous:
            return False
        store.require_administrator(identity)
    except (Refused, Stale, UnexpectedError):
        return False
    return True
