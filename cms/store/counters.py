"""The counters of `system_version`: looked at, compared with those of a plan, and held (design, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cms.database.connections import Row, Transaction
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.schema.model import Version
from cms.store.snapshot import Snapshot, load_snapshot


def current_version(fetch: Callable[[str, Sequence[object]], list[Row]]) -> Version:
    """Return the counters as they are now."""
    return Version(*fetch(statement("find_version"), ())[0])


def check_version(snapshot: Snapshot, seen: Version) -> None:
    """Raise `Stale` when an answer was made under other counters than the snapshot's."""
    if seen != snapshot.version:
        raise Stale(f"{seen} instead of {snapshot.version}")


def checked(transaction: Transaction, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot; raises `Stale` when it is old."""
    check_version(snapshot, current_version(transaction.execute))
    return snapshot


def held(transaction: Transaction, snapshot: Snapshot, lock_statement: str) -> Snapshot:
    """Return a snapshot that holds until the transaction ends: loaded within it when the one at hand is old again.

    `lock_statement` is the statement that takes the counters: "hold_version" shares them, "take_version" lets nobody
    else hold them.
    """
    version = Version(*transaction.execute(statement(lock_statement))[0])
    return snapshot if snapshot.version == version else load_snapshot(transaction)
