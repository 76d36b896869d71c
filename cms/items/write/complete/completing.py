"""Makes resolved rows of parsed rows: adds automatic values and presets, and checks the values.

This module does everything that needs no stored row. The items of most calls are completed while
the call is planned; related items, and items that a query names, are completed in the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cms.access.guarded_rules import GuardedGrant
from cms.access.policy import Grant
from cms.access.views import grants_covering
from cms.access.write_permissions import WritePermissions
from cms.errors import Problem, forbidden
from cms.items.write.complete.field_rules import FieldRules
from cms.items.write.complete.plain_rows import (
    AutoFilling,
    add_row_problems,
    changed_plain_rows,
    new_plain_rows,
)
from cms.items.write.complete.presets import PresetBinder
from cms.items.write.complete.validating import CallCache, PayloadValidator
from cms.items.write.hooks import hooks_of
from cms.items.write.stages.parsed import Owner, ParsedRow, ParsedSet
from cms.items.write.stages.problems import Problems
from cms.items.write.stages.resolved_rows import ALL_NEW, ResolvedRow, ResolvedSet, StoredRows
from cms.query.plan.links import link_of
from cms.schema.auto_fields import (
    NO_AUTO_VALUES,
    AutoFields,
    auto_fields_of,
    auto_values_of,
    complete_change,
    complete_new,
)
from cms.schema.model import Collection
from cms.schema.payload import MutableRowValues, RowValues
from cms.store.context import RequestContext
from cms.store.table_hooks import TableHooks


class _RowSource(NamedTuple):
    """A parsed set, and the facts about it that completing each of its rows needs.

    `owners` are the rows of the set above. `auto_filling` has the automatic fields of new rows
    (under True) and of changed ones, as far as there are any. `has_update_presets` is that of
    `RowCompleter`. `points_to_key` tells whether elements of a list point to the keys of their
    owners, and not to another unique column.
    """

    parsed: ParsedSet
    stored: StoredRows
    owners: Sequence[ResolvedRow]
    hooks: TableHooks
    rules: FieldRules
    auto_filling: Mapping[bool, AutoFilling]
    is_admin: bool
    has_update_presets: bool
    points_to_key: bool

    @property
    def collection(self) -> Collection:
        return self.parsed.collection

    @property
    def has_checks(self) -> bool:
        """Tell whether fields have rules, or hooks check the rows."""
        return bool(self.rules.has_rules or self.hooks.checks)

    def owner_of(self, row: ParsedRow) -> Owner | None:
        """Return the owner of a row, with what rules see in the field that points to it."""
        # An object at a to-one field does not point to its owner: its owner points to it.
        if row.owner is None or row.owner.field is None:
            return row.owner
        owner = self.owners[row.owner.number]
        # The key of a new owner is not known yet: rules see what was sent for it.
        if owner.is_new or not self.points_to_key:
            return row.owner._replace(value=owner.sent)
        return row.owner._replace(value=owner.key)

    def changed_values(self, row: ParsedRow, number: int) -> MutableRowValues:
        """Return the values that change in a stored row, without its key and unchanged values."""
        return self.stored.changes(self.parsed.collection, number, row.values)

    def require_allowed(self, row: ParsedRow) -> None:
        """Raise `Refused` FORBIDDEN for a row that only administrators may write."""
        # An element of a list sets the field that points to its owner without naming it.
        owner_field = row.owner.field.name if row.owner and row.owner.field else None
        if (
            self.hooks.is_admin_only
            or self.hooks.admin_fields & row.sent.keys()
            or owner_field in self.hooks.admin_fields
        ):
            raise forbidden()


class _CompletedRow(NamedTuple):
    """A row with all its values, and its problems."""

    row: ResolvedRow
    problems: list[Problem]


class PassingGrants(NamedTuple):
    """The grants whose validation a row passes, and the problems of the first failure.

    There are no problems if the row passes the validation of every grant.
    """

    grants: tuple[GuardedGrant, ...]
    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class RowCompleter:
    """Completes the rows of one call for its caller."""

    _context: RequestContext
    _permissions: WritePermissions
    _validator: PayloadValidator
    _cache: CallCache

    def complete(
        self,
        parsed: ParsedSet,
        problems: Problems,
        *,
        stored: StoredRows = ALL_NEW,
        owners: Sequence[ResolvedRow] = (),
    ) -> ResolvedSet:
        """Return the rows of a parsed set, filled and checked; `owners` are the rows above them.

        What is wrong with the values is added to `problems`. If permissions have presets for
        changes, changes are filled but not checked: `complete_with_presets` checks them, once the
        stored rows tell which permissions apply.
        """
        collection = parsed.collection
        hooks = hooks_of(self._validator.store, collection.name)
        rules = self._validator.rules_of(collection)
        auto_filling = self._auto_filling_of_kinds(collection, len(parsed.rows), len(stored.keys))
        is_admin = self._permissions.policy.is_admin
        # Rows that get nothing but automatic values, and are all new or all changes: large calls
        # need this shorter way, whose loops do no more than they must.
        if (
            is_admin
            and not (parsed.level or rules.has_rules or hooks.checks or stored.unchanged)
            and len(auto_filling) == 1
        ):
            if stored.keys:
                rows = changed_plain_rows(parsed, stored, auto_filling[False], problems)
            else:
                rows = new_plain_rows(parsed, auto_filling[True], problems)
        else:
            source = _RowSource(
                parsed,
                stored,
                owners,
                hooks,
                rules,
                auto_filling,
                is_admin=is_admin,
                has_update_presets=self._permissions.has_update_presets(collection),
                points_to_key=self._points_to_key(parsed),
            )
            rows = self._rows(source, problems)
        return ResolvedSet(collection, parsed.level, rows)

    def _rows(self, source: _RowSource, problems: Problems) -> list[ResolvedRow]:
        rows: list[ResolvedRow] = []
        has_checks = source.has_checks
        for number, parsed_row in enumerate(source.parsed.rows):
            if number in source.stored.keys:
                row, row_problems = self._changed_row(source, parsed_row, number)
            else:
                row, row_problems = self._new_row(source, parsed_row)
            if has_checks:
                row_problems += self._check(source, row)
            if row_problems:
                add_row_problems(row_problems, row, problems)
            rows.append(row)
        return rows

    def _points_to_key(self, parsed: ParsedSet) -> bool:
        """Tell whether the rows of a list point to the keys of their owners."""
        # One row tells for all: the elements of a set are in lists of the same field.
        first_owner = parsed.rows[0].owner if parsed.rows else None
        if first_owner is None or first_owner.field is None:
            return False
        catalogue = self._context.snapshot.catalogue
        link = link_of(catalogue, parsed.collection, first_owner.field.name)
        return link is not None and link.far == catalogue.collections[link.target].primary_key

    def _new_row(self, source: _RowSource, row: ParsedRow) -> _CompletedRow:
        owner = source.owner_of(row) if row.owner else None
        # Administrators need no permission, and so get no presets of one.
        if source.is_admin:
            values = dict(row.values)
            problems = complete_new(values, *source.auto_filling[True])
            return _CompletedRow(_resolved_row(row, values, owner), problems)
        source.require_allowed(row)
        collection = source.collection
        # Permissions are tried on the values that were sent: they decide which presets are added.
        sent_row = _resolved_row(row, row.values, owner)
        passing = self._passing_create_grants(collection, sent_row)
        # Only the first: presets of several permissions could contradict each other.
        presets = self._presets().row_presets(passing.grants[:1], collection, row.sent)
        values = {**row.values, **presets.values}
        problems = [*passing.problems, *complete_new(values, *source.auto_filling[True])]
        resolved = sent_row._replace(values=values, presets=presets.payload, grants=passing.grants)
        return _CompletedRow(resolved, problems)

    def _changed_row(self, source: _RowSource, row: ParsedRow, number: int) -> _CompletedRow:
        values = source.changed_values(row, number)
        # Below the root a row that was sent with nothing but its key is not written.
        is_written = bool(values) or not source.parsed.level
        # This needs no stored row, unlike the permissions of changes, which are checked later.
        if is_written and not source.is_admin:
            source.require_allowed(row)
        problems = complete_change(values, *source.auto_filling[False])
        # A preset may set missing or wrong values later.
        if source.has_update_presets:
            problems = []
        owner = source.owner_of(row) if row.owner else None
        # Presets come later: which permission allows a change depends on the stored row.
        key = source.stored.keys[number]
        resolved = ResolvedRow(
            row.sent, values, row.position, row.invalid_fields, owner, False, key
        )
        return _CompletedRow(resolved, problems)

    def _check(self, source: _RowSource, row: ResolvedRow) -> list[Problem]:
        """Return the problems of a row by the rules of its fields, and by hooks."""
        problems: list[Problem] = []
        collection = source.collection
        # A change with presets is validated together with them, in the transaction.
        if source.rules.has_rules and (row.is_new or not source.has_update_presets):
            problems += self._validator.field_problems(source.rules, collection, row)
        if source.hooks.checks:
            problems += source.hooks.problems(row, self._context, collection.name)
        return problems

    def complete_with_presets(
        self, collection: Collection, row: ResolvedRow, problems: Problems
    ) -> ResolvedRow:
        """Return a change to which presets have been added, filled and checked as a whole."""
        rules = self._validator.rules_of(collection)
        auto_filling = self._auto_filling(collection, is_new=False)
        values = dict(row.values)
        # Checked again: the problems of the first check were dropped, as a preset might solve them.
        row_problems = complete_change(values, *auto_filling)
        row = row._replace(values=values)
        if rules.has_rules:
            row_problems += self._validator.field_problems(rules, collection, row)
        add_row_problems(row_problems, row, problems)
        return row

    def passing_grants(
        self, grants: tuple[GuardedGrant, ...], collection: Collection, row: ResolvedRow
    ) -> PassingGrants:
        """Return the grants whose validation a row passes."""
        passing: list[GuardedGrant] = []
        first_problems: list[Problem] = []
        for grant in grants:
            problems = self._grant_problems(grant, collection, row)
            if not problems:
                passing.append(grant)
            first_problems = first_problems or problems
        return PassingGrants(tuple(passing), first_problems)

    def with_presets(
        self, grants: Sequence[Grant], collection: Collection, row: ResolvedRow
    ) -> ResolvedRow:
        """Return a row with the presets of permissions; of two for one field the first counts."""
        presets = self._presets().row_presets(grants, collection, row.sent)
        return row._replace(values={**row.values, **presets.values}, presets=presets.payload)

    def _passing_create_grants(self, collection: Collection, row: ResolvedRow) -> PassingGrants:
        """Return the permissions that allow a new item, and if there are none its problems.

        Raises `Refused` FORBIDDEN if no permission covers all fields that were sent.
        """
        grants = grants_covering(self._permissions.grants(collection, "create"), row.sent_fields)
        if not grants:
            raise forbidden()
        passing = self.passing_grants(grants, collection, row)
        # One permission is enough: the problems by the others do not matter then.
        if passing.grants:
            return passing._replace(problems=[])
        return passing

    def _presets(self) -> PresetBinder:
        return PresetBinder(self._context, self._validator, self._cache)

    def _grant_problems(
        self, grant: GuardedGrant, collection: Collection, row: ResolvedRow
    ) -> list[Problem]:
        if grant.validation is None:
            return []
        presets = self._presets().bound(grant)
        return self._validator.grant_problems(grant, collection, row, presets)

    def _auto_filling_of_kinds(
        self, collection: Collection, row_count: int, stored_count: int
    ) -> dict[bool, AutoFilling]:
        """Return the automatic fields of new rows and of changed ones, for those that there are."""
        auto_filling: dict[bool, AutoFilling] = {}
        if stored_count:
            auto_filling[False] = self._auto_filling(collection, is_new=False)
        if stored_count < row_count:
            auto_filling[True] = self._auto_filling(collection, is_new=True)
        return auto_filling

    def _auto_filling(self, collection: Collection, *, is_new: bool) -> AutoFilling:
        auto_fields: AutoFields = self._context.snapshot.derived.setdefault_with(
            ("auto fields", collection.name, is_new),
            lambda: auto_fields_of(collection, new=is_new),
        )
        if not auto_fields.automatic:
            return AutoFilling(auto_fields, NO_AUTO_VALUES)
        # The fields are the same for every call, their values belong to this one: its time and its
        # user.
        return AutoFilling(auto_fields, auto_values_of(auto_fields, self._cache.writer))


def _resolved_row(row: ParsedRow, values: RowValues, owner: Owner | None) -> ResolvedRow:
    """Return a new row with these values."""
    # By position, which takes half the time: a call may have ten thousand rows.
    return ResolvedRow(row.sent, values, row.position, row.invalid_fields, owner, True, None)
