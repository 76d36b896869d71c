"""What one caller may do, as a value (decisions, section 11)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The rights of a caller. So far an administrator may do everything and nobody else anything."""

    admin: bool = False


@dataclass(frozen=True, slots=True)
class Actor:
    """Who calls: the user and role of the request, or neither for the Public role."""

    policy: Policy
    user: str | None = None
    role: str | None = None


PUBLIC = Actor(Policy())
