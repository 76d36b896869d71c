"""System collections are reached by endpoints of their own, and by no others (docs/items.md)."""

from __future__ import annotations

from cms.access.policy import Policy
from cms.errors import Problem, Refused, forbidden
from cms.schema.system import ENDPOINTS, is_system


def require_not_system(collection: str, policy: Policy) -> None:
    """Refuse a system collection where only ordinary collections are allowed.

    Administrators get the reason. The name decides: a system collection that does not exist is
    refused with the same message.
    """
    if not is_system(collection):
        return
    # Callers other than administrators must not learn which system collections exist.
    if policy.is_admin:
        raise Refused(Problem("FORBIDDEN", _reason(collection)))
    raise forbidden()


def _reason(collection: str) -> str:
    path = ENDPOINTS.get(collection)
    where = f': "{collection}" is at {path}' if path else ""
    return f"System collections are reached by their own endpoints only{where}."
