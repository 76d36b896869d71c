"""Fills and checks the rows of a payload: automatic values, presets, and all that needs no row.

It is done while a call is planned, for all rows and with all their problems together; for rows
whose lists are resolved in the transaction, it is done there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from cms.access.guarded_rules import GuardedGrant
from cms.access.policy import Grant
from cms.access.write_permissions import WritePermissions, grants_covering, rule_of_grants
from cms.errors import Problem, forbidden
from cms.items.write.changes import ChangeSet, Problems, RowChange
from cms.items.write.hooks import hooks_of
from cms.items.write.hooks.hook import SystemTableHooks
from cms.items.write.presets import (
    convert_preset,
    preset_operand,
    refuse_preset,
    resolve_operand,
    unchanged,
)
from cms.items.write.validating import PayloadValidator
from cms.query.language.ast import CallerValue
from cms.query.plan.bindings import Bindings, Placeholder, bind_values
from cms.schema.auto_fields import (
    NO_AUTO_VALUES,
    AutoFields,
    AutoValues,
    Writer,
    auto_fields_of,
    auto_values_of,
    complete_change,
    complete_new,
)
from cms.schema.model import Collection
from cms.store.context import RequestContext


class RowCompleter:
    """Completes the rows of one call for its caller."""

    def __init__(
        self, context: RequestContext, permissions: WritePermissions, validator: PayloadValidator
    ) -> None:
        self._context = context
        self._permissions = permissions
        self._validator = validator

    def complete(self, change_set: ChangeSet, problems: Problems) -> None:
        """Fill and check the rows of a change set, for which it is known whether they are new.

        Where presets may add to changes, changes are filled only: `complete_with_presets` checks
        them once it is known which permissions hold for their rows.
        """
        collection = change_set.collection
        hooks = hooks_of(collection.name)
        rules = self._validator.rules_of(collection)
        is_admin = self._permissions.policy.is_admin
        has_presets = self.has_update_presets(collection)
        # Looked up once, and only for the kinds of rows that there are.
        for_new: tuple[AutoFields, AutoValues] | None = None
        for_changed: tuple[AutoFields, AutoValues] | None = None
        for change in change_set.changes:
            if not is_admin:
                _require_allowed(hooks, change_set, change)
            if change.is_new:
                for_new = for_new or self._auto_fields(collection, is_new=True)
                row_problems = [] if is_admin else self._apply_create_grants(collection, change)
                row_problems += complete_new(change.values, *for_new)
            else:
                for_changed = for_changed or self._auto_fields(collection, is_new=False)
                row_problems = complete_change(change.values, *for_changed)
            # What is missing or wrong now may come from a preset later.
            if has_presets and not change.is_new:
                row_problems = []
            elif rules.all_rules:
                row_problems += self._validator.field_problems(rules, collection, change)
            if hooks.checks:
                # Inside a transaction the checks look things up there, not on a second connection.
                context = replace(self._context, fetch=self._validator.fetch)
                row_problems += hooks.problems(change, context, collection.name)
            if row_problems:
                add_row_problems(row_problems, change, problems)

    def complete_with_presets(
        self, collection: Collection, change: RowChange, problems: Problems
    ) -> None:
        """Fill and check a change whose presets have been applied."""
        rules = self._validator.rules_of(collection)
        auto_fields, auto_values = self._auto_fields(collection, is_new=False)
        row_problems = complete_change(change.values, auto_fields, auto_values)
        if rules.all_rules:
            row_problems += self._validator.field_problems(rules, collection, change)
        add_row_problems(row_problems, change, problems)

    def has_update_presets(self, collection: Collection) -> bool:
        """Tell whether a permission may add values to changes.

        Which permission holds, and so what a change comes to, is known only beside the stored row.
        """
        grants = self._permissions.policy.granted(collection.name, "update")
        return any(grant.presets for grant in grants)

    def passing_grants(
        self, grants: tuple[GuardedGrant, ...], collection: Collection, change: RowChange
    ) -> tuple[tuple[GuardedGrant, ...], list[Problem]]:
        """Return the grants whose validation passes, and the problems by the first that fails."""
        passing: list[GuardedGrant] = []
        first_problems: list[Problem] = []
        for grant in grants:
            problems = self._grant_problems(grant, collection, change)
            if not problems:
                passing.append(grant)
            first_problems = first_problems or problems
        return tuple(passing), first_problems

    def apply_presets(self, grant: Grant, collection: Collection, change: RowChange) -> None:
        """Add the presets of a permission for fields that were not sent."""
        if not grant.presets:
            return
        never_preset = hooks_of(collection.name).never_preset
        for name, value in self._presets(grant).items():
            field = collection.fields.get(name)
            if field is None or field.column is None or name in change.sent:
                continue
            if name in never_preset:
                raise refuse_preset(grant, field, "no preset sets it")
            change.values[name] = None if value is None else convert_preset(grant, field, value)
            change.presets = {**(change.presets or {}), name: value}

    def _apply_create_grants(self, collection: Collection, change: RowChange) -> list[Problem]:
        """Apply the presets of the first permission that allows the new item.

        Once written, the item must fulfil the rule of one of the permissions that allow it.
        """
        grants = grants_covering(
            self._permissions.grants(collection, "create"), sent_fields(change)
        )
        if not grants:
            raise forbidden()
        passing, problems = self.passing_grants(grants, collection, change)
        if not passing:
            return problems
        # Only the first: presets of several permissions could contradict each other.
        self.apply_presets(passing[0], collection, change)
        change.rule = rule_of_grants(passing)
        return []

    def _grant_problems(
        self, grant: Grant, collection: Collection, change: RowChange
    ) -> list[Problem]:
        if grant.validation is None:
            return []
        presets = self._presets(grant)
        return self._validator.grant_problems(grant, collection, change, presets)

    def _presets(self, grant: Grant) -> dict[str, object]:
        """Return the presets of a permission, with the values that their variables stand for."""
        actor = self._context.actor
        operands = {name: preset_operand(value) for name, value in grant.presets.items()}
        known = self._validator.values_of(
            operand
            for operand in operands.values()
            if isinstance(operand, CallerValue) and operand.path
        )
        placeholders = [
            Placeholder(resolve_operand(operand, known), unchanged, name)
            for name, operand in operands.items()
        ]
        # Bound like the operands of a filter, so that $NOW means the same in both.
        values = bind_values(placeholders, Bindings((), actor.user, actor.role))
        return dict(zip(operands, values, strict=True))

    @cached_property
    def _writer(self) -> Writer:
        """Who writes, and when; all rows of a call are of the same moment."""
        return Writer.now(self._context.actor.user, self._context.actor.role)

    def _auto_fields(
        self, collection: Collection, *, is_new: bool
    ) -> tuple[AutoFields, AutoValues]:
        """Return the automatic fields of new or changed rows, and this writer's values for them."""
        auto_fields: AutoFields = self._context.snapshot.derived.setdefault_with(
            ("auto fields", collection.name, is_new),
            lambda: auto_fields_of(collection, new=is_new),
        )
        if not auto_fields.automatic:
            return auto_fields, NO_AUTO_VALUES
        return auto_fields, auto_values_of(auto_fields, self._writer)


def sent_fields(change: RowChange) -> set[str]:
    """Return the fields that a row was sent with, and the one that points to its owner."""
    names = {str(name) for name in change.sent}
    if change.parent_field and change.parent_field in change.values:
        names.add(change.parent_field)
    return names


def add_row_problems(
    row_problems: Iterable[Problem], change: RowChange, problems: Problems
) -> None:
    """Keep the problems of a row, except for fields whose values are known to be unusable."""
    for problem in row_problems:
        if problem.extensions.get("field") not in change.invalid_fields:
            problems.add(problem, change.position)


def _require_allowed(hooks: SystemTableHooks, change_set: ChangeSet, change: RowChange) -> None:
    """Refuse everybody but administrators what only they write; a key alone writes nothing."""
    if change_set.level and not change.is_new and not change.values:
        return
    if (
        hooks.is_admin_only
        or hooks.admin_fields & change.sent.keys()
        or change.parent_field in hooks.admin_fields
    ):
        raise forbidden()
