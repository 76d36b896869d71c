"""What permissions say of rows that are to be written (docs/permissions.md).

What needs nothing but the payload is decided while the call is planned (`complete`). What depends
on the stored rows is decided inside the transaction: before anything is written (`authorize`,
`authorize_delete`), and on the rows as they have become (`check`).
"""

from __future__ import annotations

from collections.abc import Sequence

from cms.access.guard import view_of
from cms.access.guarded_rules import NO_ROWS, GuardedGrant, GuardedRule
from cms.access.write_permissions import WritePermissions, has_all_covered
from cms.database.connections import Fetch
from cms.errors import forbidden, not_found
from cms.items.write.changes import ChangeSet, Problems, RowChange
from cms.items.write.completing import RowCompleter, sent_fields
from cms.items.write.hooks import hooks_of
from cms.items.write.validating import PayloadValidator
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.sql.row_checks import check_rows
from cms.schema.model import Collection
from cms.store.context import RequestContext
from cms.store.store import Store


class WriteAuthorizer:
    """Decides for one caller what the rows of one call may become."""

    def __init__(self, store: Store, context: RequestContext) -> None:
        self._context = context
        self.permissions = WritePermissions(context.actor.policy, context.snapshot.catalogue)
        self._validator = PayloadValidator(store, context)
        self._completer = RowCompleter(context, self.permissions, self._validator)

    def use_transaction(self, fetch: Fetch) -> None:
        """Look everything up in the transaction from now on.

        It holds a connection of the pool: waiting for a second one might never end.
        """
        self._validator.fetch = fetch

    # The payload

    def complete(self, change_set: ChangeSet, problems: Problems) -> None:
        """Fill and check the rows of a change set, for which it is known whether they are new."""
        self._completer.complete(change_set, problems)

    def has_conditions(self, collection: Collection) -> bool:
        """Tell whether a change depends on what else the item holds."""
        return bool(self._validator.rules_of(collection).conditions)

    def authorize_without_rows(self, change_set: ChangeSet, problems: Problems) -> None:
        """Check changes where all permissions hold for all rows (`WritePermissions.row_rules`)."""
        if self.permissions.policy.is_admin:
            return
        grants = self.permissions.grants(change_set.collection, "update")
        for change in change_set.changes:
            self._authorize_update(change_set, change, grants, problems)

    # The rows before the write

    def authorize(
        self,
        change_set: ChangeSet,
        changes: Sequence[RowChange],
        fetch: Fetch,
        problems: Problems,
    ) -> None:
        """Check changes against the stored rows; raises `Refused` NOT_FOUND or FORBIDDEN.

        Permissions come before the hooks, whose problems would tell of rows that are hidden.
        """
        if changes and not self.permissions.policy.is_admin:
            grants = self.permissions.grants(change_set.collection, "update")
            keys = [str(change.key) for change in changes]
            grants_by_key = self._grants_by_key(change_set.collection, keys, grants, fetch)
            for change in changes:
                row_grants = grants_by_key[str(change.key)]
                self._authorize_update(change_set, change, row_grants, problems)
        # Hooks see new rows too, which no permission had to be found for here.
        new = [change for change in change_set.changes if change.is_new]
        self._run_before_hook(change_set.collection, [*changes, *new], (), fetch)
        self._validator.check_conditions(change_set, changes, fetch, problems)

    def authorize_delete(self, collection: Collection, keys: Sequence[str], fetch: Fetch) -> None:
        """Check that rows may be deleted."""
        if not self.permissions.policy.is_admin:
            if hooks_of(collection.name).is_admin_only:
                raise forbidden()
            grants = self.permissions.grants(collection, "delete")
            self._grants_by_key(collection, keys, grants, fetch)
        self._run_before_hook(collection, (), keys, fetch)

    def authorize_column(
        self, collection: Collection, keys: Sequence[str], column: str, fetch: Fetch
    ) -> None:
        """Check that what rows hold in a column may change."""
        if self.permissions.policy.is_admin or not keys:
            return
        hooks = hooks_of(collection.name)
        if hooks.is_admin_only or column in hooks.admin_fields:
            raise forbidden()
        grants = self.permissions.grants(collection, "update")
        grants_by_key = self._grants_by_key(collection, keys, grants, fetch)
        if not all(has_all_covered(row_grants, [column]) for row_grants in grants_by_key.values()):
            raise forbidden()

    def _authorize_update(
        self,
        change_set: ChangeSet,
        change: RowChange,
        grants: tuple[GuardedGrant, ...],
        problems: Problems,
    ) -> None:
        """Check one change under the permissions that hold for its row."""
        collection = change_set.collection
        names = sent_fields(change) - {change_set.key_field}  # the key itself does not change
        if not has_all_covered(grants, names):
            raise forbidden()
        passing, validation_problems = self._completer.passing_grants(grants, collection, change)
        if not passing or not has_all_covered(passing, names):
            for problem in validation_problems:
                problems.add(problem, change.position)
        for grant in reversed(passing):  # of two presets for one field the first counts
            self._completer.apply_presets(grant, collection, change)
        if self._completer.has_update_presets(collection):
            self._completer.complete_with_presets(collection, change, problems)
        change.rule = self.permissions.rule_after(collection, names)

    def _run_before_hook(
        self,
        collection: Collection,
        changes: Sequence[RowChange],
        deleted_keys: Sequence[str],
        fetch: Fetch,
    ) -> None:
        hooks = hooks_of(collection.name)
        if hooks.before and (changes or deleted_keys):
            hooks.before(fetch, self._context, changes, deleted_keys)

    def _grants_by_key(
        self,
        collection: Collection,
        keys: Sequence[str],
        grants: tuple[GuardedGrant, ...],
        fetch: Fetch,
    ) -> dict[str, tuple[GuardedGrant, ...]]:
        """Return which of the grants hold for each row, and lock these rows.

        Raises `Refused`: NOT_FOUND for a row that is missing or hidden, FORBIDDEN for one for which
        no grant holds.
        """
        if not keys:
            return {}
        catalogue = self._context.snapshot.catalogue
        view = view_of(collection.name, catalogue=catalogue, policy=self._context.actor.policy)
        # The first rule tells whether the caller sees the row: a hidden one is NOT_FOUND.
        rules = [view.rule if view else NO_ROWS, *(grant.rule for grant in grants)]
        visible: set[str] = set()
        grants_by_key: dict[str, tuple[GuardedGrant, ...]] = {}
        for key, is_visible, *answers in self._test_rows(collection, keys, rules, fetch, lock=True):
            if is_visible:
                visible.add(str(key))
            grants_by_key[str(key)] = tuple(
                grant for grant, holds in zip(grants, answers, strict=True) if holds
            )
        refused = [key for key in keys if not grants_by_key.get(key)]
        if not visible.issuperset(refused):
            raise not_found()
        if refused:
            raise forbidden()
        return grants_by_key

    # The rows after the write

    def check(self, change_set: ChangeSet, fetch: Fetch) -> None:
        """Check written rows against the rules that allowed them; raises `Refused` FORBIDDEN."""
        collection = change_set.collection
        written = [change for change in change_set.changes if change.is_new or change.values]
        self.run_after_hook(collection, fetch, written)
        # One statement tests all rows of a rule, however many there are.
        keys_by_rule: list[tuple[GuardedRule, list[str]]] = []
        for change in change_set.changes:
            if change.rule is not None and change.key is not None:
                _keys_of_rule(change.rule, keys_by_rule).append(change.key)
        for rule, keys in keys_by_rule:
            rows = self._test_rows(collection, keys, [rule], fetch)
            if len(rows) < len(keys) or not all(holds for _, holds in rows):
                raise forbidden()

    def run_after_hook(
        self, collection: Collection, fetch: Fetch, changes: Sequence[RowChange] = ()
    ) -> None:
        """Let the hooks of a system table look at what a write has left."""
        hooks = hooks_of(collection.name)
        if hooks.after:
            hooks.after(fetch, self._context, changes)

    def _test_rows(
        self,
        collection: Collection,
        keys: Sequence[str],
        rules: Sequence[GuardedRule],
        fetch: Fetch,
        *,
        lock: bool = False,
    ) -> list[tuple[object, ...]]:
        """Return the key of each stored row, with whether each rule holds for it."""
        actor = self._context.actor
        predicates = [rule.predicate for rule in rules]
        # A row may be named twice, in different places of a payload.
        fragment = check_rows(collection, list(dict.fromkeys(keys)), predicates, lock=lock)
        text, values = fragment.numbered()
        return fetch(text, bind_values(values, Bindings((), actor.user, actor.role)))


def _keys_of_rule(
    rule: GuardedRule, keys_by_rule: list[tuple[GuardedRule, list[str]]]
) -> list[str]:
    """Return the list of keys of a rule, which is added when there is none yet.

    A list and not a dictionary: a rule that holds a geometry has no hash. There are few rules.
    """
    for known, keys in keys_by_rule:
        if known == rule:
            return keys
    keys_by_rule.append((rule, []))
    return keys_by_rule[-1][1]
