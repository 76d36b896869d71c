"""Authorizes the rows of a call: permissions of the caller, and hooks of system tables.

Rows are checked three times (docs/permissions.md). The `completer` makes the checks that need only
the payload. `authorize` and `authorize_delete` check the stored rows in the transaction, before
anything is written. `check` tries the rules of permissions on the rows after they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from cms.access.guard import untriggered, view_of
from cms.access.guarded_rules import NO_ROWS, GuardedGrant, GuardedRule, grouped_by_rule
from cms.access.views import rules_of
from cms.access.write_permissions import WritePermissions, has_all_covered, rule_of_grants
from cms.database.connections import Fetch
from cms.errors import Refused, forbidden, not_found
from cms.items.write.complete.completing import RowCompleter
from cms.items.write.complete.validating import CallCache, PayloadValidator
from cms.items.write.hooks import hooks_of
from cms.items.write.stages.mutations import AuthorizedDelete, AuthorizedSet, RowId, RowSet
from cms.items.write.stages.problems import Problems, with_position
from cms.items.write.stages.resolved_rows import ResolvedRow, ResolvedSet
from cms.items.write.stages.written_rows import WrittenRows
from cms.items.write.transaction.row_indexes import at_indexes
from cms.query.plan.masks import has_subselect
from cms.query.sql.locks import check_rows
from cms.schema.model import Collection, Kind
from cms.store.context import RequestContext
from cms.store.fetching import fetch_fragment
from cms.store.store import Store
from cms.store.table_hooks import keys_of


class WriteAuthorizer:
    """Checks the rows of one call against the permissions of its caller.

    `completer` makes the rows that are authorized; both share lookups about the caller.
    """

    def __init__(
        self, store: Store, context: RequestContext, cache: CallCache | None = None
    ) -> None:
        self._store = store
        self._context = context
        policy = context.actor.policy
        # Kept with the snapshot: callers with the same policy guard and combine their rules once.
        self.permissions: WritePermissions = context.snapshot.derived.setdefault_with(
            ("write permissions", policy),
            lambda: WritePermissions(policy, context.snapshot.catalogue),
        )
        self._cache = cache or CallCache(context.actor)
        self._validator = PayloadValidator(store, context, self._cache)
        self.completer = RowCompleter(context, self.permissions, self._validator, self._cache)

    def in_transaction(self, context: RequestContext) -> WriteAuthorizer:
        """Return the authorizer for the transaction of the call, in which `context` fetches.

        The new authorizer keeps the lookups of this one.
        """
        return WriteAuthorizer(self._store, context, self._cache)

    # Without stored rows

    def has_conditions(self, collection: Collection) -> bool:
        """Tell whether fields have conditions, which need the stored item beside its change."""
        return bool(self._validator.rules_of(collection).conditions)

    def authorize_without_rows(self, resolved: ResolvedSet, problems: Problems) -> AuthorizedSet:
        """Return a set, authorized as if all permissions of the caller applied to each row.

        The one statement that writes the set tests the stored row itself: it writes only if they do
        (`WritePermissions.update_rules`). Raises `Refused` FORBIDDEN.
        """
        if self.permissions.policy.is_admin:
            return AuthorizedSet(resolved, resolved.rows)
        numbers = resolved.changed_numbers
        # A set of new rows needs no stored ones: completing has found permissions for each.
        if not numbers:
            return AuthorizedSet(resolved, resolved.rows, _creation_rules(resolved))
        grants = self.permissions.grants(resolved.collection, "update")
        grants_of_rows = [grants] * len(numbers)
        return self._authorized_changes(resolved, numbers, grants_of_rows, problems)

    # The rows before the write

    def authorize(self, resolved: ResolvedSet, fetch: Fetch, problems: Problems) -> AuthorizedSet:
        """Return a set, authorized; raises `Refused` NOT_FOUND or FORBIDDEN.

        The stored rows decide which permissions apply to a change, and so which presets it gets.
        Problems by validations and conditions are added to `problems`.
        """
        collection = resolved.collection
        numbers = resolved.changed_numbers
        _require_triggers(resolved, numbers)
        if self.permissions.policy.is_admin:
            authorized = AuthorizedSet(resolved, resolved.rows)
        elif numbers:
            grants_of_rows = self._grants_of_rows(resolved, numbers, fetch)
            authorized = self._authorized_changes(resolved, numbers, grants_of_rows, problems)
        else:
            authorized = AuthorizedSet(resolved, resolved.rows, _creation_rules(resolved))
        changed = at_indexes(authorized.rows, numbers)
        # After the permissions: a refusal by a hook would reveal rows that the caller cannot see.
        if hooks_of(self._store, collection.name).before:
            # Hooks get new rows as well, which have no stored row to authorize.
            new = [row for row in authorized.rows if row.is_new]
            self._run_before_hook(collection, [*changed, *new], (), fetch)
        self._validator.check_conditions(collection, changed, fetch, problems)
        return authorized

    def check_before_flows(
        self, collection: Collection, keys: Sequence[str], verb: str, fetch: Fetch
    ) -> None:
        """Check a create or an update as far as possible before flows change its payload.

        A flow may have effects that are not undone with the write, such as a request to a server.
        Raises `Refused` NOT_FOUND or FORBIDDEN.
        """
        if self.permissions.policy.is_admin:
            return
        grants = self.permissions.grants(collection, verb)
        if not grants or hooks_of(self._store, collection.name).is_admin_only:
            raise forbidden()
        if verb == "update":
            self._grants_by_key(collection, keys, grants, fetch)

    def authorize_delete(
        self, collection: Collection, keys: Sequence[str], fetch: Fetch
    ) -> AuthorizedDelete:
        """Return rows, authorized to be deleted; raises `Refused` NOT_FOUND or FORBIDDEN."""
        if keys and (problem := untriggered(collection, "delete")):
            raise Refused(problem)
        if not self.permissions.policy.is_admin:
            if hooks_of(self._store, collection.name).is_admin_only:
                raise forbidden()
            grants = self.permissions.grants(collection, "delete")
            self._grants_by_key(collection, keys, grants, fetch)
        self._run_before_hook(collection, (), keys, fetch)
        return AuthorizedDelete(collection, keys)

    def authorize_column(
        self, collection: Collection, keys: Sequence[str], column: str, fetch: Fetch
    ) -> None:
        """Check that the caller may change one column of rows, to values that the service sets.

        Raises `Refused` NOT_FOUND or FORBIDDEN.
        """
        if self.permissions.policy.is_admin or not keys:
            return
        hooks = hooks_of(self._store, collection.name)
        if hooks.is_admin_only or column in hooks.admin_fields:
            raise forbidden()
        grants = self.permissions.grants(collection, "update")
        grants_by_key = self._grants_by_key(collection, keys, grants, fetch)
        for row_grants in grants_by_key.values():
            if not has_all_covered(row_grants, [column]):
                raise forbidden()

    def _grants_of_rows(
        self, resolved: ResolvedSet, numbers: Sequence[int], fetch: Fetch
    ) -> list[tuple[GuardedGrant, ...]]:
        """Return for each changed row the grants whose rule it fulfils, and lock the rows."""
        grants = self.permissions.grants(resolved.collection, "update")
        keys = keys_of(at_indexes(resolved.rows, numbers))
        grants_by_key = self._grants_by_key(resolved.collection, keys, grants, fetch)
        return [grants_by_key[key] for key in keys]

    def _authorized_changes(
        self,
        resolved: ResolvedSet,
        numbers: Sequence[int],
        grants_of_rows: Iterable[tuple[GuardedGrant, ...]],
        problems: Problems,
    ) -> AuthorizedSet:
        """Return a set, its changes authorized by the permissions that apply to each row."""
        collection = resolved.collection
        rows = list(resolved.rows)
        rules = _creation_rules(resolved)
        for number, grants in zip(numbers, grants_of_rows, strict=True):
            names = rows[number].changed_fields(collection)
            if not has_all_covered(grants, names):
                raise forbidden()
            rule = self.permissions.rule_after(collection, names)
            if rule is not None:
                rules[number] = rule
            # Presets do not count among the names: they may set what the caller may not.
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
        has_presets = self.permissions.has_update_presets(collection)
        # The usual case is left early: a call may have ten thousand rows.
        if not has_presets and not any(grant.validation for grant in grants):
            return row
        passing = self.completer.passing_grants(grants, collection, row)
        # Each field needs a permission whose validation passes, not every permission.
        if not passing.grants or not has_all_covered(passing.grants, names):
            for problem in passing.problems:
                problems.add(problem, row.position)
        row = self.completer.with_presets(passing.grants, collection, row)
        if has_presets:
            row = self.completer.complete_with_presets(collection, row, problems)
        return row

    def _run_before_hook(
        self,
        collection: Collection,
        rows: Sequence[ResolvedRow],
        deleted_keys: Sequence[str],
        fetch: Fetch,
    ) -> None:
        hooks = hooks_of(self._store, collection.name)
        if hooks.before and (rows or deleted_keys):
            hooks.before(fetch, self._context, rows, deleted_keys)

    def _grants_by_key(
        self,
        collection: Collection,
        keys: Sequence[str],
        grants: tuple[GuardedGrant, ...],
        fetch: Fetch,
    ) -> dict[str, tuple[GuardedGrant, ...]]:
        """Return the grants whose rule each row fulfils, and lock the rows until the end.

        Raises `Refused`: NOT_FOUND if a row is missing or hidden, FORBIDDEN if a row fulfils the
        rule of no grant.
        """
        if not keys:
            return {}
        catalogue = self._context.snapshot.catalogue
        view = view_of(collection.name, catalogue=catalogue, policy=self._context.actor.policy)
        # The first rule tells whether the caller sees the row: a hidden one is NOT_FOUND.
        visibility = view.rule if view else NO_ROWS
        rules = [visibility, *rules_of(grants)]
        visible: set[str] = set()
        grants_by_key: dict[str, tuple[GuardedGrant, ...]] = {}
        for key, is_visible, *answers in self._test_rows(collection, keys, rules, fetch, lock=True):
            if is_visible:
                visible.add(str(key))
            # An answer for each grant, in their order.
            grants_by_key[str(key)] = tuple(compress(grants, answers))
        # Whether the caller sees a row matters only where it may not write it.
        refused = [key for key in keys if not grants_by_key.get(key)]
        # A missing row has given no answer, and so is not visible either.
        if not visible.issuperset(refused):
            raise not_found()
        if refused:
            raise forbidden()
        return grants_by_key

    # The rows after the write

    def check(self, written: WrittenRows, row_set: RowSet, fetch: Fetch) -> None:
        """Check the rows of a set after the write: the rules they must fulfil, and hooks.

        Raises `Refused` FORBIDDEN for a row that breaks its rule, or with the problems of a hook.
        """
        collection = row_set.collection
        if hooks_of(self._store, collection.name).after:
            rows = written.rows(row_set)
            # Rows without values were only named by their keys, and are as they were.
            changed = [row for row in rows if row.is_new or row.values]
            self.run_after_hook(collection, fetch, changed)
        keys_to_test: list[tuple[GuardedRule, str]] = []
        for number, rule in row_set.rules.items():
            key = written.key(RowId(row_set.number, number))
            if key is not None:
                keys_to_test.append((rule, key))
        # One statement tests all rows of a rule, however many there are.
        for rule, keys in grouped_by_rule(keys_to_test):
            answers = self._test_rows(collection, keys, [rule], fetch)
            # A row without an answer is gone: a trigger may have removed it.
            if len(answers) < len(keys):
                raise forbidden()
            for _, holds in answers:
                if not holds:
                    raise forbidden()

    def run_after_hook(
        self, collection: Collection, fetch: Fetch, rows: Sequence[ResolvedRow] = ()
    ) -> None:
        """Run the hook of a system table that follows a write; `rows` are the written ones."""
        hooks = hooks_of(self._store, collection.name)
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
        """Return the key of each stored row, and for each rule whether the row fulfils it."""
        predicates = tuple(rule.predicate for rule in rules)
        # A row may be named twice, in different places of a payload.
        named = list(dict.fromkeys(keys))
        bindings = self._context.bindings()
        # A statement that has waited for a row sees the row as it is now, but all other tables as
        # they were before. So a rule that looks into these is tested once the rows are locked.
        if lock and has_subselect(predicates):
            fetch_fragment(fetch, check_rows(collection, named, (), lock=True), bindings)
            lock = False
        return fetch_fragment(fetch, check_rows(collection, named, predicates, lock=lock), bindings)


def _require_triggers(resolved: ResolvedSet, changed: Sequence[int]) -> None:
    """Raise `Refused` FORBIDDEN for the first row of a view that no trigger can write."""
    if resolved.collection.kind is not Kind.VIEW:
        return
    new = [row for row in resolved.rows if row.is_new]
    for action, rows in (("create", new), ("update", at_indexes(resolved.rows, changed))):
        problem = untriggered(resolved.collection, action)
        if problem and rows:
            raise Refused(with_position(problem, rows[0].position))


def _creation_rules(resolved: ResolvedSet) -> dict[int, GuardedRule]:
    """Return the rules that new rows must fulfil once they are written, by their numbers.

    A row must fulfil the rule of one of the permissions that allow it.
    """
    rules: dict[int, GuardedRule] = {}
    for number, row in enumerate(resolved.rows):
        if row.grants is None:
            continue
        rule = rule_of_grants(row.grants)
        if rule is not None:
            rules[number] = rule
    return rules
