"""The counters of `system_version`: compared with those of a plan, and locked.

docs/code-map.md ("Freshness") explains what they are for.
"""

from __future__ import annotations

from cms.database.connections import Transaction
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.schema.model import Version
from cms.store.snapshot import Snapshot, load_snapshot


def check_version(snapshot: Snapshot, version: Version) -> None:
    """Raise `Stale` when the counters of an answer are not those of the snapshot."""
    if version != snapshot.version:
        raise Stale(f"{version} instead of {snapshot.version}")


def lock_version(transaction: Transaction, snapshot: Snapshot, lock_statement: str) -> Snapshot:
    """Lock the counters until the transaction ends, and return a snapshot of their version.

    `lock_statement` names the statement that locks: "share_version" shares the counters,
    "lock_version" lets nobody else lock them.
    """
    version = Version(*transaction.execute(statement(lock_statement))[0])
    # The counters may have increased while this transaction waited for the lock. Under the lock
    # they cannot, so a snapshot that is loaded now stays up to date.
    if snapshot.version == version:
        return snapshot
    return load_snapshot(transaction, before=snapshot)
