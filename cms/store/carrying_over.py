"""What a new snapshot takes over of the one before: callers, views and statements that still hold.

A statement, or a view of a policy, has beside it what it was made of (`cms.access.dependencies`).
After a change of structure it stays if its collections and relations have not changed. After a
change of rights it stays in the cache, and is compared with the grants of whoever needs it next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cms.access.dependencies import Names, changed_names
from cms.access.policy import Policy
from cms.store.statement_caches import StatementCache

if TYPE_CHECKING:
    from cms.store.snapshot import Snapshot


def carry_over(before: Snapshot, current: Snapshot) -> None:
    """Fill the caches of a new snapshot with what still holds of the one before."""
    # If the counters are the same, the snapshot before was found stale for another reason.
    if current.version == before.version:
        return
    changed = None
    # Snapshots of one structure share their statements, which are compared with rights when used.
    if current.structure is not before.structure:
        changed = changed_names(before.catalogue, current.catalogue)
        _carry_statements(before.prepared_reads, current.prepared_reads, changed)
        _carry_statements(before.statements, current.statements, changed)
    # After a change of flows alone these are the same as well.
    if current.policies is before.policies:
        return
    if before.version.access == current.version.access:
        _carry_callers(before, current, changed)
    else:
        _keep_former_policies(before, current, changed)


def _carry_statements(old: StatementCache, new: StatementCache, changed: Names) -> None:
    # The statements that were used longest ago come first, so they are still the first to be
    # dropped.
    for key, kept in old.copy().items():
        if kept.dependencies.outlive(changed):
            new.setdefault(key, kept)


def _keep_former_policies(before: Snapshot, current: Snapshot, changed: Names | None) -> None:
    """Keep policies of older rights to compare those of the same names with.

    Only those of the snapshot before: rights of roles that are gone must not stay.
    """
    for name, policy in before.policies.copy().items():
        # Policies of shares are left out: what a share shows depends on an item as well.
        if policy.shared is None:
            current.former_policies[name] = _outliving(policy, changed)


def _carry_callers(before: Snapshot, current: Snapshot, changed: Names | None) -> None:
    """Keep callers, each with the rights that were found for it: the counter says that they hold.

    To look up a caller with many permissions, and to parse these, takes longer than to load a
    changed collection.
    """
    outliving: dict[int, Policy] = {}
    for caller, actor in before.actors.copy().items():
        policy = actor.policy
        if policy.shared is not None:
            continue
        if not policy.is_admin:
            if id(policy) not in outliving:
                outliving[id(policy)] = _outliving(policy, changed)
            policy = outliving[id(policy)]
            # Other callers with the same roles find the policy here.
            current.policies.setdefault(policy.name, policy)
        current.actors.setdefault(caller, replace(actor, policy=policy))


def _outliving(policy: Policy, changed: Names | None) -> Policy:
    """Return a policy with those of its views that a change of the structure leaves right."""
    if changed is None:
        return policy
    # Another one of the same grants: a request that still runs may add views of before to the old.
    outliving = replace(policy)
    for key, kept in policy.views.copy().items():
        if kept.dependencies.outlive(changed):
            outliving.views[key] = kept
    return outliving
