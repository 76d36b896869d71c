"""Writes a payload in a transaction: resolve, authorize, plan, run.

All that is wrong with the payload is refused together, before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cms.database.error_mapping import Conflict
from cms.errors import STATUS, Refused
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.executor import Executor
from cms.items.write.inquiry import PayloadInquiry, asked_set, refuse
from cms.items.write.parsed import ParsedSet
from cms.items.write.payload_parser import PayloadParser
from cms.items.write.planning import plan_mutations
from cms.items.write.resolved_rows import ResolvedRow, ResolvedSet, walk_sets
from cms.items.write.resolving import Resolver
from cms.items.write.rows import lock_rows
from cms.items.write.running import PlanRun


@dataclass(frozen=True, slots=True)
class CompletePayload:
    """The payload of a call, as far as it is known without stored rows.

    `root` are its items, with nothing below them yet; `related` is what they say of related items,
    None for nothing. `parser` holds the problems.
    """

    parser: PayloadParser
    authorizer: WriteAuthorizer
    root: ResolvedSet
    related: ParsedSet | None


def write_tree(executor: Executor, payload: CompletePayload) -> list[str]:
    """Write a payload, and return the keys of its items in their order.

    Raises `Refused` with everything that is wrong with the payload before anything is written.
    """
    context = executor.context
    catalogue = context.snapshot.catalogue
    tree = _TreeAuthorization(executor, payload)
    root = tree.authorize()
    asked = (asked_set(resolved, rows) for resolved, rows in tree.rows.items())
    refuse(payload.parser.problems, catalogue, asked, is_permitted=context.actor.policy.is_admin)
    plan = plan_mutations(catalogue, root, tree.rows)
    run = PlanRun(executor, plan)
    try:
        run.run()
    except Conflict as conflict:
        sets = [
            asked_set(resolved, list(run.written.rows(row_set)))
            for resolved, row_set in zip(tree.rows, plan.sets, strict=True)
        ]
        conflict.inquiry = PayloadInquiry(catalogue, sets, is_permitted=True)
        raise
    run.link_revisions()
    for row_set in plan.sets:
        payload.authorizer.check(run.written, row_set, executor.transaction.execute)
    return run.written.keys(plan.sets[0])


class _TreeAuthorization:
    """Resolves a payload, and checks everything that it is to do against the stored rows.

    `rows` are the authorized rows of each set, in the order of a walk.
    """

    def __init__(self, executor: Executor, payload: CompletePayload) -> None:
        self._executor = executor
        self._payload = payload
        self.rows: dict[ResolvedSet, Sequence[ResolvedRow]] = {}

    def authorize(self) -> ResolvedSet:
        """Return the resolved tree, whose sets are then keys of `rows`."""
        root = self._payload.root
        related = self._payload.related
        if related is None:
            self.rows[root] = self._authorized(root)
            return root
        if root.stored_keys:
            # Two calls that replace the same list take turns.
            lock_rows(self._executor, root.collection, root.stored_keys)
        rows = self._authorized_root(root, related)
        tree = self._resolver().resolve(related, root)
        self.rows[tree] = rows
        self._authorize_below(tree)
        return tree

    def _authorized_root(self, root: ResolvedSet, related: ParsedSet) -> Sequence[ResolvedRow]:
        """Return the rows of a root, authorized before their lists are read.

        Refusals for what is below, which may name what the caller has no permission on, come first.
        The lists of a hidden row are not read for them, so that it is refused like a missing one.
        """
        try:
            return self._authorized(root)
        except Refused as refused:
            if refused.status in (STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]):
                rows = [row._replace(key=None) for row in root.rows]
                self._resolver().resolve(related, replace(root, rows=rows))
            raise

    def _authorize_below(self, tree: ResolvedSet) -> None:
        """Check everything but the root, once it is resolved."""
        for resolved in walk_sets(tree):
            if resolved is not tree:
                self.rows[resolved] = self._authorized(resolved)
            for to_many in resolved.to_many:
                if to_many.deleted_keys:
                    self._payload.authorizer.authorize_delete(
                        to_many.elements.collection,
                        to_many.deleted_keys,
                        self._executor.transaction.execute,
                    )

    def _authorized(self, resolved: ResolvedSet) -> Sequence[ResolvedRow]:
        fetch = self._executor.transaction.execute
        problems = self._payload.parser.problems
        return self._payload.authorizer.authorize(resolved, fetch, problems)

    def _resolver(self) -> Resolver:
        return Resolver(self._executor, self._payload.parser, self._payload.authorizer)
