"""Where system collections are reached: by endpoints of their own, and by no others (decisions, section 15)."""

from __future__ import annotations

from cms.access.policy import Policy
from cms.errors import Problem, Refused, forbidden
from cms.schema.build import is_system
from cms.schema.system import ENDPOINTS


def require_not_system(collection: str, policy: Policy) -> None:
    """Refuse a system collection where items of people's own collections are meant; administrators are told why.

    The name decides: one that does not exist is refused with the same words.
    """
    if is_system(collection):
        raise Refused(Problem("FORBIDDEN", _reason(collection))) if policy.is_admin else forbidden()


def _reason(collection: str) -> str:
    path = ENDPOINTS.get(collection)
    where = f': "{collection}" is at {path}' if path else ""
    return f"System collections are reached by their own endpoints only{where}."
