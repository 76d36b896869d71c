"""What a new snapshot reuses of the one before: callers, views and statements that still hold.

A statement, or a view of a policy, records its dependencies (`cms.access.dependencies`). After a
change of structure a statement stays if its collections and relations have not changed; after a
change of rights it stays in the cache, and is compared with the grants of the next caller. Callers
stay with their policies: a view of a policy is compared with the structure when it is used. So the
time of a change does not depend on the number of cached callers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cachebox import LRUCache

from cms.access.policy import Policy
from cms.access.views import drop_old_views
from cms.schema.model import Catalogue
from cms.store.statement_caches import StatementCache

if TYPE_CHECKING:
    from cms.store.snapshot import Snapshot

MAX_CLEARED_POLICIES = 100
"""Policies of each cache that one change clears of old views: a few milliseconds of work."""


def carried_over(before: Snapshot, current: Snapshot) -> Snapshot:
    """Return a new snapshot, with the valid entries of the one before in its caches."""
    # If the counters are the same, the snapshot before was found stale for another reason.
    if current.version == before.version:
        return current
    # Snapshots of one structure share their statements, which are compared with rights when used.
    if current.structure is not before.structure:
        _carry_statements(before.prepared_reads, current.prepared_reads, current.catalogue)
        _carry_statements(before.statements, current.statements, current.catalogue)
        _carry_statements(before.write_statements, current.write_statements, current.catalogue)
    current = _with_callers(before, current)
    for policies in (current.policies, current.former_policies):
        _clear_some(policies, current)
    return current


def _carry_statements(old: StatementCache, new: StatementCache, catalogue: Catalogue) -> None:
    # The statements that were used longest ago come first, so they are still the first to be
    # dropped.
    for key, cached in old.copy().items():
        if cached.dependencies.hold_in(catalogue):
            new.setdefault(key, cached)


def _with_callers(before: Snapshot, current: Snapshot) -> Snapshot:
    """Return a snapshot with the callers of the one before, as far as their rights are the same.

    To look up a caller with many permissions, and to parse these, takes longer than to load a
    changed collection. Both snapshots then share the caches, because their rights are the same. If
    the rights differ, only the policies of the snapshot before are kept, so that new policies of
    the same names can be compared with them; rights of deleted roles must not stay longer.
    """
    if before.version.access != current.version.access:
        return replace(current, former_policies=before.policies)
    return replace(
        current,
        actors=before.actors,
        policies=before.policies,
        former_policies=before.former_policies,
    )


def _clear_some(policies: LRUCache[str, Policy], current: Snapshot) -> None:
    """Clear some policies of views of older structures, which would keep old collections.

    Only policies that nobody uses have any for long. Each change clears another slice of all
    policies.
    """
    every = list(policies.copy().values())
    slices = -(-len(every) // MAX_CLEARED_POLICIES)
    if not slices:
        return
    first = current.version.structure % slices * MAX_CLEARED_POLICIES
    for policy in every[first : first + MAX_CLEARED_POLICIES]:
        drop_old_views(policy, current.catalogue)
