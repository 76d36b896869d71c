"""Attempts at the work of a request, and the errors that end them."""

from __future__ import annotations

from typing import NamedTuple

from cms.database.error_mapping import Stale, UndefinedName
from cms.errors import Refused, unavailable
from cms.schema.model import Version
from cms.store.snapshot import Snapshot

ATTEMPTS = 5
"""Attempts at work before it is refused because structure or rights keep changing."""

UNLOCKED_ATTEMPTS = 2
"""Attempts at a write that do not lock the counters; later ones do."""


class Attempt(NamedTuple):
    """One attempt at work, and the snapshot that it uses.

    An attempt that `holds_version` locks the counters, so that structure and rights cannot change.
    `deadlocked` says that an earlier attempt ended in a deadlock.
    """

    snapshot: Snapshot
    holds_version: bool
    deadlocked: bool


class StaleRefusal(NamedTuple):
    """The counters under which a statement was refused, and PostgreSQL's message."""

    version: Version
    message: str


def is_unavailable(refusal: Exception) -> bool:
    """Tell whether the work cannot be done now, whatever the structure is."""
    return isinstance(refusal, Refused) and refusal.is_unavailable


def refuse_repeated(
    stale: Stale, snapshot: Snapshot, last_error: StaleRefusal | None
) -> StaleRefusal | None:
    """Return the error to compare the next one with.

    Raises `Refused` for one that stayed the same after the structure was loaded again.
    """
    # Other counters, or a plan that became invalid, are different with the next snapshot.
    if not isinstance(stale, UndefinedName):
        return None
    error = StaleRefusal(snapshot.version, str(stale))
    # The same name is missing under the same structure, so that no further attempt would help.
    if error == last_error:
        raise unavailable("database", f"It refuses the statement: {stale}") from stale
    return error
