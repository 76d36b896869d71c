"""What permissions and the rules of fields say of rows that are to be written (decisions, sections 5, 6 and 11).

What needs nothing but the payload is judged while the call is planned, for all rows and all their faults at once
(`complete`). What depends on the rows that are there is judged inside the transaction, before anything is written
(`authorize`, `authorize_delete`), and what they have become after it (`check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from cms import jsontext
from cms.access.guard import view_of
from cms.access.policy import Grant
from cms.access.write_permissions import (
    WritePermissions,
    grants_covering,
    has_all_covered,
    rule_of_grants,
)
from cms.database.connections import Fetch
from cms.errors import Problem, forbidden, not_found
from cms.items.write.caller_values import caller_values
from cms.items.write.changes import ChangeSet, Problems, RowChange
from cms.items.write.field_rules import FieldRules, field_rules, filled
from cms.items.write.hooks import hooks_of
from cms.items.write.hooks.hook import SystemTableHooks
from cms.items.write.presets import (
    convert_preset,
    preset_operand,
    refuse_preset,
    resolve_operand,
    unchanged,
)
from cms.query.language.ast import NOTHING, CallerValue, Filter
from cms.query.plan.bindings import Bindings, Placeholder, bind_values
from cms.query.plan.links import link_of
from cms.query.plan.plan import resolve_rule
from cms.query.rules.validation import PayloadRule, RuleContext, caller_paths, failures
from cms.query.sql.row_checks import check_rows, item_contents
from cms.schema.auto_fields import (
    NO_AUTO_VALUES,
    AutoFields,
    AutoValues,
    Writer,
    auto_fields_of,
    auto_values_of,
    complete_change,
    complete_new,
    missing,
)
from cms.schema.model import Collection
from cms.store.context import RequestContext
from cms.store.store import Store

Json = Mapping[str, object]


class WriteAuthorizer:
    """Judges the rows of one call for one caller; `fetch` looks up what rules need to know of it."""

    def __init__(self, store: Store, context: RequestContext, fetch: Fetch) -> None:
        self._store = store
        self._context = context
        self._fetch = fetch
        self._known: dict[CallerValue, tuple[object, ...]] = {}
        self.licence = WritePermissions(context.actor.policy, context.snapshot.catalogue)

    def use_transaction(self, fetch: Fetch) -> None:
        """Look things up in the transaction from now on: a second connection beside it could be waited for in vain."""
        self._fetch = fetch

    # The payload

    def complete(self, batch: ChangeSet, faults: Problems) -> None:
        """Fill and check the rows of a batch whose `new` is known; changes that presets may add to only fill."""
        rules, hooks = self._rules(batch.collection), hooks_of(batch.collection.name)
        free, preset = self.licence.policy.is_admin, self._has_update_presets(batch.collection)
        of_new: tuple[AutoFields, AutoValues] | None = None
        of_change: tuple[AutoFields, AutoValues] | None = None
        for draft in batch.drafts:
            if not free:
                self._require_allowed(hooks, batch, draft)
            if draft.new:
                of_new = of_new or self._auto_fields(batch.collection, new=True)
                problems = [] if free else self._authorize_create(batch, draft)
                problems += complete_new(draft.values, *of_new)
            else:
                of_change = of_change or self._auto_fields(batch.collection, new=False)
                problems = complete_change(draft.values, *of_change)
            if rules.all_rules and (draft.new or not preset):
                problems += self._rule_problems(rules, batch.collection, draft)
            if preset and not draft.new:
                problems = []
            if hooks.checks:
                problems += hooks.problems(
                    draft, replace(self._context, fetch=self._fetch), batch.collection.name
                )
            if problems:
                _add_problems(problems, draft, faults)

    def _has_update_presets(self, collection: Collection) -> bool:
        """Tell whether a permission may add to changes, so that they are known only beside the rows that are there."""
        return any(
            grant.presets for grant in self.licence.policy.granted(collection.name, "update")
        )

    @cached_property
    def _writer(self) -> Writer:
        """Who writes; all rows of a call are of one moment."""
        return Writer.now(self._context.actor.user, self._context.actor.role)

    def _auto_fields(self, collection: Collection, *, new: bool) -> tuple[AutoFields, AutoValues]:
        """Return what rows need that are made, or that change, and what this writer's stamps are."""
        key = "duties", collection.name, new
        auto_fields: AutoFields = self._context.snapshot.derived.setdefault_with(
            key, lambda: auto_fields_of(collection, new=new)
        )
        return auto_fields, auto_values_of(
            auto_fields, self._writer
        ) if auto_fields.automatic else NO_AUTO_VALUES

    def _require_allowed(self, hooks: SystemTableHooks, batch: ChangeSet, draft: RowChange) -> None:
        """Refuse others than administrators what only those write; a key alone writes nothing."""
        if batch.level and not draft.new and not draft.values:
            return
        if (
            hooks.is_admin_only
            or hooks.admin_fields & draft.sent.keys()
            or draft.parent_field in hooks.admin_fields
        ):
            raise forbidden()

    def _authorize_create(self, batch: ChangeSet, draft: RowChange) -> list[Problem]:
        """Take the presets of the first permission that lets the item be; it must fulfil the rule of one that does."""
        grants = grants_covering(
            self.licence.grants(batch.collection, "create"), _sent_fields(batch, draft)
        )
        if not grants:
            raise forbidden()
        passing, failed = self._passing_grants(grants, batch.collection, draft)
        if not passing:
            return failed
        self._apply_presets(passing[0], batch.collection, draft)
        draft.rule = rule_of_grants(passing)
        return []

    def _passing_grants(
        self, grants: tuple[Grant, ...], collection: Collection, draft: RowChange
    ) -> tuple[tuple[Grant, ...], list[Problem]]:
        """Return the grants whose validation passes, and what is wrong with the item by the first that does not."""
        failed = [self._validation_problems(grant, collection, draft) for grant in grants]
        passing = tuple(
            grant for grant, problems in zip(grants, failed, strict=True) if not problems
        )
        return passing, next(filter(None, failed), [])

    def _validation_problems(
        self, grant: Grant, collection: Collection, draft: RowChange
    ) -> list[Problem]:
        if grant.validation is None:
            return []
        values = {**self._presets(grant), **draft.sent, **self._parent_reference(collection, draft)}
        return failures(
            grant.validation, values, self._rule_input(collection, [grant.validation], draft)
        )

    def _apply_presets(self, grant: Grant, collection: Collection, draft: RowChange) -> None:
        """Merge presets under the payload."""
        for name, value in self._presets(grant).items() if grant.presets else ():
            found = collection.fields.get(name)
            if found and found.column and name not in draft.sent:
                if name in hooks_of(collection.name).never_preset:
                    raise refuse_preset(grant, found, "no preset sets it")
                draft.values[name] = None if value is None else convert_preset(grant, found, value)
                draft.presets = {**(draft.presets or {}), name: value}

    def _presets(self, grant: Grant) -> dict[str, object]:
        operands = {name: preset_operand(value) for name, value in grant.presets.items()}
        known = self._values_of(
            found for found in operands.values() if isinstance(found, CallerValue) and found.path
        )
        fixed = [resolve_operand(found, known) for found in operands.values()]
        values = [
            Placeholder(found, unchanged, name) for name, found in zip(operands, fixed, strict=True)
        ]
        return dict(
            zip(
                operands,
                bind_values(
                    values, Bindings((), self._context.actor.user, self._context.actor.role)
                ),
                strict=True,
            )
        )

    # The rules of fields

    def _rules(self, collection: Collection) -> FieldRules:
        derived = self._context.snapshot.derived
        rules: FieldRules = derived.setdefault_with(
            ("rules", collection.name), lambda: field_rules(collection)
        )
        return rules

    def _rule_problems(
        self, rules: FieldRules, collection: Collection, draft: RowChange
    ) -> list[Problem]:
        """Return what is wrong by the rules of fields that need nothing but the payload."""
        values, given = (
            self._payload(collection, draft),
            self._rule_input(collection, rules.all_rules, draft),
        )
        given = replace(given, unsent_values=filled(rules, draft) if draft.new else {})
        told = rules.validation_problems(values, replace(given, is_creation=False))
        return told + (
            [missing(found) for found in rules.missing_on_create(values, given)]
            if draft.new
            else []
        )

    def _check_conditions(
        self, batch: ChangeSet, drafts: Sequence[RowChange], fetch: Fetch, faults: Problems
    ) -> None:
        """Check what changes make of conditions, which speak of the whole item; what lacked already may go on."""
        rules = self._rules(batch.collection)
        if not rules.conditions or not drafts:
            return
        keys = [str(draft.key) for draft in drafts]
        text, values = item_contents(batch.collection, keys).numbered()
        loads_stored: dict[object, Any] = {
            key: jsontext.loads_stored(row) for key, row in fetch(text, values)
        }
        for draft in drafts:
            before = loads_stored.get(draft.key, {})
            given = replace(
                self._rule_input(batch.collection, rules.all_rules, draft), is_creation=True
            )
            lacked = rules.missing_fields(before, given)
            for found in rules.missing_fields(
                {**before, **self._payload(batch.collection, draft)}, given
            ):
                if found not in lacked:
                    faults.add(missing(found), draft.position)

    def _payload(self, collection: Collection, draft: RowChange) -> Json:
        return {**(draft.presets or {}), **draft.sent, **self._parent_reference(collection, draft)}

    def _parent_reference(self, collection: Collection, draft: RowChange) -> Json:
        """Return what a row of a list holds in the field that points to the row above, whatever was sent for it."""
        if (
            draft.parent_field is None
            or draft.parent_row is None
            or draft.parent_field not in draft.values
        ):
            return {}
        catalogue = self._context.snapshot.catalogue
        link = link_of(catalogue, collection, draft.parent_field)
        by_key = link is not None and link.far == catalogue.collections[link.target].primary_key
        return {
            draft.parent_field: draft.parent_row.key
            if by_key and not draft.parent_row.new
            else draft.parent_row.sent
        }

    def _rule_input(
        self, collection: Collection, rules: Iterable[PayloadRule], draft: RowChange
    ) -> RuleContext:
        actor, catalogue = self._context.actor, self._context.snapshot.catalogue
        paths = frozenset(path for rule in rules for path in caller_paths(rule))
        known = self._values_of(paths)
        return RuleContext(
            collection,
            catalogue,
            is_creation=draft.new,
            user=actor.user,
            role=actor.role,
            caller_values=known,
        )

    def _values_of(self, paths: Iterable[CallerValue]) -> Mapping[CallerValue, tuple[object, ...]]:
        """Return at least what these paths lead to; each is looked up once for a call, however many rows there are."""
        unknown = [path for path in paths if path not in self._known]
        if unknown:
            self._known.update(caller_values(self._store, self._context, self._fetch, unknown))
        return self._known

    # The rows that are there

    def authorize(
        self, batch: ChangeSet, drafts: Sequence[RowChange], fetch: Fetch, faults: Problems
    ) -> None:
        """Check changes against the rows as they are; raises `Refused` NOT_FOUND or FORBIDDEN.

        Rights come before what the keeper minds, which would tell of a row that the caller does not see.
        """
        if drafts and not self.licence.policy.is_admin:
            self._authorize_updates(batch, drafts, fetch, faults)
        self._run_before_hook(
            batch.collection, [*drafts, *(draft for draft in batch.drafts if draft.new)], (), fetch
        )
        self._check_conditions(batch, drafts, fetch, faults)

    def _authorize_updates(
        self, batch: ChangeSet, drafts: Sequence[RowChange], fetch: Fetch, faults: Problems
    ) -> None:
        grants = self.licence.grants(batch.collection, "update")
        held = self._grants_by_key(
            batch.collection, [str(draft.key) for draft in drafts], grants, fetch
        )
        for draft in drafts:
            self._authorize_update(batch, draft, held[str(draft.key)], faults)
            draft.rule = self.licence.rule_after(batch.collection, _changed_fields(batch, draft))

    def has_conditions(self, collection: Collection) -> bool:
        """Tell whether a change depends on what else the item holds."""
        return bool(self._rules(collection).conditions)

    def authorize_without_rows(self, batch: ChangeSet, faults: Problems) -> None:
        """Check changes under permissions that all hold for the rows, as `WritePermissions.terms` are."""
        if not self.licence.policy.is_admin:
            for draft in batch.drafts:
                self._authorize_update(
                    batch, draft, self.licence.grants(batch.collection, "update"), faults
                )
                draft.rule = self.licence.rule_after(
                    batch.collection, _changed_fields(batch, draft)
                )

    def _authorize_update(
        self, batch: ChangeSet, draft: RowChange, held: tuple[Grant, ...], faults: Problems
    ) -> None:
        names = _changed_fields(batch, draft)
        if not has_all_covered(held, names):
            raise forbidden()
        passing, failed = self._passing_grants(held, batch.collection, draft)
        for problem in failed if not passing or not has_all_covered(passing, names) else ():
            faults.add(problem, draft.position)
        for grant in reversed(passing):  # of two presets for one field the first counts
            self._apply_presets(grant, batch.collection, draft)
        if self._has_update_presets(batch.collection):
            self._complete_with_presets(batch.collection, draft, faults)

    def _complete_with_presets(
        self, collection: Collection, draft: RowChange, faults: Problems
    ) -> None:
        """Fill and check a change once its presets are there."""
        rules, problems = (
            self._rules(collection),
            complete_change(draft.values, *self._auto_fields(collection, new=False)),
        )
        if rules.all_rules:
            problems += self._rule_problems(rules, collection, draft)
        _add_problems(problems, draft, faults)

    def authorize_delete(self, collection: Collection, keys: Sequence[str], fetch: Fetch) -> None:
        """Check that rows may be deleted."""
        if not self.licence.policy.is_admin:
            if hooks_of(collection.name).is_admin_only:
                raise forbidden()
            self._grants_by_key(collection, keys, self.licence.grants(collection, "delete"), fetch)
        self._run_before_hook(collection, (), keys, fetch)

    def authorize_column(
        self, collection: Collection, keys: Sequence[str], column: str, fetch: Fetch
    ) -> None:
        """Check that what rows hold in a column may change."""
        if self.licence.policy.is_admin or not keys:
            return
        hooks = hooks_of(collection.name)
        if hooks.is_admin_only or column in hooks.admin_fields:
            raise forbidden()
        held = self._grants_by_key(
            collection, keys, self.licence.grants(collection, "update"), fetch
        )
        if not all(has_all_covered(grants, [column]) for grants in held.values()):
            raise forbidden()

    def _run_before_hook(
        self, collection: Collection, drafts: Sequence[RowChange], gone: Sequence[str], fetch: Fetch
    ) -> None:
        hooks = hooks_of(collection.name)
        if hooks.before and (drafts or gone):
            hooks.before(fetch, self._context, drafts, gone)

    def _grants_by_key(
        self, collection: Collection, keys: Sequence[str], grants: tuple[Grant, ...], fetch: Fetch
    ) -> dict[str, tuple[Grant, ...]]:
        """Return which of the grants hold for each row, all of which are locked."""
        if not keys:
            return {}
        catalogue, policy = self._context.snapshot.catalogue, self._context.actor.policy
        view = view_of(collection.name, catalogue=catalogue, policy=policy)
        rules = [view.rule if view else NOTHING, *(grant.rule for grant in grants)]
        rows = self._fetch_checks(collection, keys, rules, fetch, lock=True)
        answers = {str(key): (seen, said) for key, seen, *said in rows}
        held = {
            key: tuple(grant for grant, holds in zip(grants, said, strict=True) if holds)
            for key, (_, said) in answers.items()
        }
        missing = [key for key in keys if not held.get(key)]
        if any(key not in answers or not answers[key][0] for key in missing):
            raise not_found()
        if missing:
            raise forbidden()
        return held

    # What they have become

    def check(self, batch: ChangeSet, fetch: Fetch) -> None:
        """Check rows that were written against the rules that let them be; raises `Refused` FORBIDDEN."""
        self.run_after_hook(
            batch.collection, fetch, [draft for draft in batch.drafts if draft.new or draft.values]
        )
        by_rule: list[tuple[Filter, list[str]]] = []
        for draft in batch.drafts:
            if draft.rule is not None and draft.key is not None:
                _keys_for_rule(draft.rule, by_rule).append(draft.key)
        for rule, keys in by_rule:
            self._require(batch.collection, keys, rule, fetch)

    def _require(
        self, collection: Collection, keys: Sequence[str], rule: Filter, fetch: Fetch
    ) -> None:
        rows = self._fetch_checks(collection, keys, [rule], fetch)
        if len(rows) < len(keys) or not all(holds for _, holds in rows):
            raise forbidden()

    def run_after_hook(
        self, collection: Collection, fetch: Fetch, drafts: Sequence[RowChange] = ()
    ) -> None:
        """Let the keeper of a collection look at what a write has left."""
        hooks = hooks_of(collection.name)
        if hooks.after:
            hooks.after(fetch, self._context, drafts)

    def _fetch_checks(
        self,
        collection: Collection,
        keys: Sequence[str],
        rules: Sequence[Filter],
        fetch: Fetch,
        *,
        lock: bool = False,
    ) -> list[tuple[object, ...]]:
        catalogue, actor = self._context.snapshot.catalogue, self._context.actor
        predicates = [resolve_rule(rule, collection, catalogue) for rule in rules]
        text, values = check_rows(
            collection, list(dict.fromkeys(keys)), predicates, lock=lock
        ).numbered()
        return fetch(text, bind_values(values, Bindings((), actor.user, actor.role)))


def _add_problems(problems: Iterable[Problem], draft: RowChange, faults: Problems) -> None:
    """Keep what is wrong with a row, but for fields whose values are known to be no good."""
    for problem in problems:
        if problem.extensions.get("field") not in draft.invalid_fields:
            faults.add(problem, draft.position)


def _keys_for_rule(rule: Filter, by_rule: list[tuple[Filter, list[str]]]) -> list[str]:
    """Return the keys of a rule, which are there as soon as it is asked for; there are few different ones."""
    for known, keys in by_rule:
        if known == rule:
            return keys
    by_rule.append((rule, []))
    return by_rule[-1][1]


def _sent_fields(batch: ChangeSet, draft: RowChange) -> set[str]:
    """Return the fields that a row was sent with, and the one that ties it to the row above."""
    parent_field = (
        {draft.parent_field} if draft.parent_field and draft.parent_field in draft.values else set()
    )
    return {str(name) for name in draft.sent} | parent_field


def _changed_fields(batch: ChangeSet, draft: RowChange) -> set[str]:
    """Return the fields of a row that change: its key does not."""
    return _sent_fields(batch, draft) - {batch.key_field}
