"""What permissions say of rows that are to be written (docs/permissions.md).

What needs nothing but the payload is decided while the call is planned (`complete`). What depends
on the stored rows is decided inside the transaction: before anything is written (`authorize`,
`authorize_delete`), and on the rows as they have become (`check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cms.access.guard import view_of
from cms.access.guarded_rules import NO_ROWS, GuardedGrant, GuardedRule, grouped_by_rule
from cms.access.write_permissions import WritePermissions, has_all_covered, rule_of_grants
from cms.database.connections import Fetch
from cms.errors import forbidden, not_found
from cms.items.write.completing import RowCompleter
from cms.items.write.hooks import hooks_of
from cms.items.write.mutations import AuthorizedSet, RowId, RowSet
from cms.items.write.parsed import ParsedSet
from cms.items.write.problems import Problems
from cms.items.write.resolved_rows import ALL_NEW, ResolvedRow, ResolvedSet, StoredRows
from cms.items.write.validating import PayloadValidator
from cms.items.write.written_rows import WrittenRows
from cms.query.sql.row_checks import check_rows
from cms.schema.model import Collection
from cms.store.context import RequestContext
from cms.store.fetching import fetch_fragment
from cms.store.store import Store


class WriteAuthorizer:
    """Decides for one caller what the rows of one call may become."""

    def __init__(self, store: Store, context: RequestContext) -> None:
        self._context = context
        policy = context.actor.policy
        self.permissions: WritePermissions = context.snapshot.derived.setdefault_with(
            ("write permissions", policy),
            lambda: WritePermissions(policy, context.snapshot.catalogue),
        )
        self._validator = PayloadValidator(store, context)
        self._completer = RowCompleter(context, self.permissions, self._validator)

    def use_transaction(self, fetch: Fetch) -> None:
        """Look everything up in the transaction from now on.

        It holds a connection of the pool: waiting for a second one might never end.
        """
        self._validator.fetch = fetch

    # The payload

    def complete(
        self,
        parsed: ParsedSet,
        problems: Problems,
        *,
        stored: StoredRows = ALL_NEW,
        owners: Sequence[ResolvedRow] = (),
    ) -> ResolvedSet:
        """Return the rows of a parsed set, filled and checked; `owners` are the rows above them."""
        return self._completer.complete(parsed, problems, stored=stored, owners=owners)

    def has_conditions(self, collection: Collection) -> bool:
        """Tell whether a change depends on what else the item holds."""
        return bool(self._validator.rules_of(collection).conditions)

    def authorize_without_rows(self, resolved: ResolvedSet, problems: Problems) -> AuthorizedSet:
        """Return a set, authorized where all permissions to change hold for all rows.

        See `WritePermissions.row_rules`.
        """
        if self.permissions.policy.is_admin:
            return AuthorizedSet(resolved, resolved.rows)
        numbers = resolved.changed_numbers
        if not numbers:
            return AuthorizedSet(resolved, resolved.rows, _creation_rules(resolved))
        grants = self.permissions.grants(resolved.collection, "update")
        grants_of_rows = [grants] * len(numbers)
        return self._authorized_changes(resolved, numbers, grants_of_rows, problems)

    # The rows before the write

    def authorize(self, resolved: ResolvedSet, fetch: Fetch, problems: Problems) -> AuthorizedSet:
        """Return a set, authorized; raises `Refused` NOT_FOUND or FORBIDDEN.

        Changes are checked against the stored rows, which decide what permissions add to them.
        Permissions come before the hooks, whose problems would tell of rows that are hidden.
        """
        collection = resolved.collection
        numbers = resolved.changed_numbers
        if self.permissions.policy.is_admin:
            authorized = AuthorizedSet(resolved, resolved.rows)
        elif numbers:
            grants = self.permissions.grants(collection, "update")
            keys = [str(resolved.rows[number].key) for number in numbers]
            grants_by_key = self._grants_by_key(collection, keys, grants, fetch)
            grants_of_rows = [grants_by_key[key] for key in keys]
            authorized = self._authorized_changes(resolved, numbers, grants_of_rows, problems)
        else:
            authorized = AuthorizedSet(resolved, resolved.rows, _creation_rules(resolved))
        changed = [authorized.rows[number] for number in numbers]
        if hooks_of(collection.name).before:
            # Hooks see new rows too, which no permission had to be found for here.
            new = [row for row in authorized.rows if row.is_new]
            self._run_before_hook(collection, [*changed, *new], (), fetch)
        self._validator.check_conditions(collection, changed, fetch, problems)
        return authorized

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

    def _authorized_changes(
        self,
        resolved: ResolvedSet,
        numbers: Sequence[int],
        grants_of_rows: Iterable[tuple[GuardedGrant, ...]],
        problems: Problems,
    ) -> AuthorizedSet:
        """Return a set, its changes authorized under the permissions that hold for each row."""
        collection = resolved.collection
        rows = list(resolved.rows)
        rules = _creation_rules(resolved)
        for number, grants in zip(numbers, grants_of_rows, strict=True):
            # The key itself does not change.
            names = rows[number].sent_fields - {resolved.key_field}
            if not has_all_covered(grants, names):
                raise forbidden()
            rule = self.permissions.rule_after(collection, names)
            if rule is not None:
                rules[number] = rule
            rows[number] = self._with_presets(collection, rows[number], grants, names, problems)
        return AuthorizedSet(resolved, rows, rules)

    def _with_presets(
        self,
        collection: Collection,
        row: ResolvedRow,
        grants: tuple[GuardedGrant, ...],
        names: set[str],
        problems: Problems,
    ) -> ResolvedRow:
        """Return a change with the presets of the permissions whose validation it passes."""
        has_presets = self._completer.has_update_presets(collection)
        # Nothing is added to the row, of which a call may have ten thousand.
        if not has_presets and not any(grant.validation for grant in grants):
            return row
        passing, validation_problems = self._completer.passing_grants(grants, row)
        if not passing or not has_all_covered(passing, names):
            for problem in validation_problems:
                problems.add(problem, row.position)
        row = self._completer.with_presets(passing, collection, row)
        if has_presets:
            row = self._completer.complete_with_presets(collection, row, problems)
        return row

    def _run_before_hook(
        self,
        collection: Collection,
        rows: Sequence[ResolvedRow],
        deleted_keys: Sequence[str],
        fetch: Fetch,
    ) -> None:
        hooks = hooks_of(collection.name)
        if hooks.before and (rows or deleted_keys):
            hooks.before(fetch, self._context, rows, deleted_keys)

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

    def check(self, written: WrittenRows, row_set: RowSet, fetch: Fetch) -> None:
        """Check the rows of a set, as they were written, against the rules that allowed them.

        Raises `Refused` FORBIDDEN.
        """
        collection = row_set.collection
        if hooks_of(collection.name).after:
            rows = written.rows(row_set)
            changed = [row for row in rows if row.is_new or row.values]
            self.run_after_hook(collection, fetch, changed)
        written_keys = [
            (rule, written.key(RowId(row_set.number, number)))
            for number, rule in row_set.rules.items()
        ]
        # One statement tests all rows of a rule, however many there are.
        for rule, keys in grouped_by_rule(
            (rule, key) for rule, key in written_keys if key is not None
        ):
            answers = self._test_rows(collection, keys, [rule], fetch)
            if len(answers) < len(keys) or not all(holds for _, holds in answers):
                raise forbidden()

    def run_after_hook(
        self, collection: Collection, fetch: Fetch, rows: Sequence[ResolvedRow] = ()
    ) -> None:
        """Let the hooks of a system table look at what a write has left."""
        hooks = hooks_of(collection.name)
        if hooks.after:
            hooks.after(fetch, self._context, rows)

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
        predicates = [rule.predicate for rule in rules]
        # A row may be named twice, in different places of a payload.
        fragment = check_rows(collection, list(dict.fromkeys(keys)), predicates, lock=lock)
        return fetch_fragment(fetch, fragment, self._context.bindings())


def _creation_rules(resolved: ResolvedSet) -> dict[int, GuardedRule]:
    """Return what new rows must fulfil once they are written, by their numbers.

    That is the rule of one of the permissions that allow them.
    """
    rules: dict[int, GuardedRule] = {}
    for number, row in enumerate(resolved.rows):
        rule = None if row.grants is None else rule_of_grants(row.grants)
        if rule is not None:
            rules[number] = rule
    return rules
