"""Makes resolved rows of parsed rows: adds automatic values and presets, and checks the values.

All that needs no stored row happens here. The items of most calls are completed while the call is
planned; related items, and items that a query names, are completed in the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from cms.access.guarded_rules import GuardedGrant
from cms.access.policy import Grant
from cms.access.write_permissions import WritePermissions, grants_covering
from cms.errors import Problem, forbidden
from cms.items.write.field_rules import FieldRules
from cms.items.write.hooks import hooks_of
from cms.items.write.hooks.hook import SystemTableHooks
from cms.items.write.parsed import Owner, ParsedRow, ParsedSet
from cms.items.write.plain_rows import (
    AutoFilling,
    add_row_problems,
    changed_plain_rows,
    new_plain_rows,
    values_without_key,
)
from cms.items.write.presets import (
    convert_preset,
    preset_operand,
    refuse_preset,
    resolve_operand,
)
from cms.items.write.problems import Problems
from cms.items.write.resolved_rows import ALL_NEW, ResolvedRow, ResolvedSet, StoredRows
from cms.items.write.validating import PayloadValidator
from cms.query.language.ast import CallerValue
from cms.query.plan.bindings import Placeholder, bind_values, unchanged
from cms.query.plan.links import link_of
from cms.schema.auto_fields import (
    NO_AUTO_VALUES,
    AutoFields,
    Writer,
    auto_fields_of,
    auto_values_of,
    complete_change,
    complete_new,
)
from cms.schema.model import Collection
from cms.schema.payload import Values
from cms.store.context import RequestContext


class _RowSource(NamedTuple):
    """A parsed set, with everything that completing one of its rows needs to know of the set.

    `owners` are the rows of the set above. `points_to_key` tells whether elements of a list point
    to the keys of their owners, and not to another unique column.
    """

    parsed: ParsedSet
    stored: StoredRows
    owners: Sequence[ResolvedRow]
    hooks: SystemTableHooks
    rules: FieldRules
    is_admin: bool
    points_to_key: bool

    @property
    def collection(self) -> Collection:
        return self.parsed.collection

    def owner_of(self, row: ParsedRow) -> Owner | None:
        """Return the owner of a row, with what rules see in the field that points to it."""
        if row.owner is None or row.owner.field is None:
            return row.owner
        owner = self.owners[row.owner.number]
        # The key of a new owner is not known yet: rules see what was sent for it.
        is_known = self.points_to_key and not owner.is_new
        return row.owner._replace(value=owner.key if is_known else owner.sent)

    def changed_values(self, row: ParsedRow, number: int) -> Values:
        """Return what a stored row is to change: neither its key nor what it already holds."""
        values = values_without_key(row.values, self.parsed.key_field, self.stored.keys[number])
        for name in self.stored.unchanged.get(number, ()):
            del values[name]
        return values

    def require_allowed(self, row: ParsedRow) -> None:
        """Raise `Refused` FORBIDDEN for a row that only administrators may write."""
        # An element of a list sets the field that points to its owner without naming it.
        owner_field = row.owner.field if row.owner else None
        if (
            self.hooks.is_admin_only
            or self.hooks.admin_fields & row.sent.keys()
            or owner_field in self.hooks.admin_fields
        ):
            raise forbidden()


class RowCompleter:
    """Completes the rows of one call for its caller."""

    def __init__(
        self, context: RequestContext, permissions: WritePermissions, validator: PayloadValidator
    ) -> None:
        self._context = context
        self._permissions = permissions
        self._validator = validator
        self._known_presets: dict[int, tuple[Grant, dict[str, object]]] = {}

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
        source = self._source(parsed, stored, owners)
        has_presets = self.has_update_presets(parsed.collection)
        has_checks = bool(source.rules.has_rules or source.hooks.checks)
        # Rows without checks, permissions and owners take a shorter way, which large calls need.
        if source.is_admin and not (has_checks or parsed.level):
            plain_rows = self._plain_rows(source, problems)
            if plain_rows is not None:
                return ResolvedSet(parsed.collection, parsed.level, plain_rows)
        # Looked up once, and only for the kinds of rows that there are.
        for_new: AutoFilling | None = None
        for_changed: AutoFilling | None = None
        rows: list[ResolvedRow] = []
        for number, parsed_row in enumerate(parsed.rows):
            if number in stored.keys:
                for_changed = for_changed or self._auto_filling(parsed.collection, is_new=False)
                row, row_problems = self._changed_row(source, parsed_row, number, for_changed)
                # What is missing or wrong now may come from a preset later.
                if has_presets:
                    row_problems = []
            else:
                for_new = for_new or self._auto_filling(parsed.collection, is_new=True)
                row, row_problems = self._new_row(source, parsed_row, for_new)
            if has_checks:
                # A change with presets is validated together with them, in the transaction.
                is_validated = row.is_new or not has_presets
                row_problems += self._check(source, row, is_validated=is_validated)
            if row_problems:
                add_row_problems(row_problems, row, problems)
            rows.append(row)
        return ResolvedSet(parsed.collection, parsed.level, rows)

    def _plain_rows(self, source: _RowSource, problems: Problems) -> list[ResolvedRow] | None:
        """Return items that are all new or all changes; None for a mixture."""
        parsed = source.parsed
        keys = source.stored.keys
        # Automatic fields differ between new and changed rows, and are looked up once for all.
        if not keys:
            auto_filling = self._auto_filling(parsed.collection, is_new=True)
            return new_plain_rows(parsed, auto_filling, problems)
        if len(keys) < len(parsed.rows) or source.stored.unchanged:
            return None
        auto_filling = self._auto_filling(parsed.collection, is_new=False)
        return changed_plain_rows(parsed, keys, auto_filling, problems)

    def _source(
        self, parsed: ParsedSet, stored: StoredRows, owners: Sequence[ResolvedRow]
    ) -> _RowSource:
        collection = parsed.collection
        return _RowSource(
            parsed,
            stored,
            owners,
            hooks_of(collection.name),
            self._validator.rules_of(collection),
            is_admin=self._permissions.policy.is_admin,
            points_to_key=self._points_to_key(parsed),
        )

    def _points_to_key(self, parsed: ParsedSet) -> bool:
        """Tell whether the rows of a list point to the keys of their owners."""
        # One row tells for all: the elements of a set are in lists of the same field.
        first_owner = parsed.rows[0].owner if parsed.rows else None
        if first_owner is None or first_owner.field is None:
            return False
        catalogue = self._context.snapshot.catalogue
        link = link_of(catalogue, parsed.collection, first_owner.field)
        return link is not None and link.far == catalogue.collections[link.target].primary_key

    def _new_row(
        self, source: _RowSource, row: ParsedRow, auto_filling: AutoFilling
    ) -> tuple[ResolvedRow, list[Problem]]:
        owner = source.owner_of(row) if row.owner else None
        values = dict(row.values)
        # Administrators need no permission, and so get no presets of one.
        if source.is_admin:
            problems = complete_new(values, *auto_filling)
            # By position, which takes half the time: a call may have ten thousand rows.
            resolved = ResolvedRow(
                row.sent, values, row.position, row.invalid_fields, owner, True, None
            )
            return resolved, problems
        source.require_allowed(row)
        collection = source.collection
        presets: dict[str, object] = {}
        # Both dictionaries are filled below, before anybody else has the row.
        resolved = ResolvedRow(
            row.sent, values, row.position, row.invalid_fields, owner, True, None, presets
        )
        passing, grant_problems = self._passing_create_grants(collection, resolved)
        if passing:
            # Only the first: presets of several permissions could contradict each other.
            self._add_presets(passing[0], collection, row.sent, values, presets)
        problems = [*grant_problems, *complete_new(values, *auto_filling)]
        return resolved._replace(grants=passing), problems

    def _changed_row(
        self, source: _RowSource, row: ParsedRow, number: int, auto_filling: AutoFilling
    ) -> tuple[ResolvedRow, list[Problem]]:
        values = source.changed_values(row, number)
        # Below the root a row that was sent with nothing but its key is not written.
        is_written = bool(values) or not source.parsed.level
        if is_written and not source.is_admin:
            source.require_allowed(row)
        problems = complete_change(values, *auto_filling)
        owner = source.owner_of(row) if row.owner else None
        # Presets come later: which permission allows a change depends on the stored row.
        key = source.stored.keys[number]
        resolved = ResolvedRow(
            row.sent, values, row.position, row.invalid_fields, owner, False, key
        )
        return resolved, problems

    def _check(self, source: _RowSource, row: ResolvedRow, *, is_validated: bool) -> list[Problem]:
        """Return the problems of a row by the rules of its fields, and by hooks."""
        problems: list[Problem] = []
        collection = source.collection
        if source.rules.has_rules and is_validated:
            problems += self._validator.field_problems(source.rules, collection, row)
        if source.hooks.checks:
            # Inside a transaction the checks look things up there, not on a second connection.
            context = self._context._replace(fetch=self._validator.fetch)
            problems += source.hooks.problems(row, context, collection.name)
        return problems

    def complete_with_presets(
        self, collection: Collection, row: ResolvedRow, problems: Problems
    ) -> ResolvedRow:
        """Return a change to which presets have been added, filled and checked as a whole."""
        rules = self._validator.rules_of(collection)
        auto_filling = self._auto_filling(collection, is_new=False)
        values = dict(row.values)
        row_problems = complete_change(values, *auto_filling)
        row = row._replace(values=values)
        if rules.has_rules:
            row_problems += self._validator.field_problems(rules, collection, row)
        add_row_problems(row_problems, row, problems)
        return row

    def has_update_presets(self, collection: Collection) -> bool:
        """Tell whether any permission of the caller has presets for changes.

        Only the stored row tells which permissions apply, and so which presets a change gets.
        """
        grants = self._permissions.policy.granted(collection.name, "update")
        return any(grant.presets for grant in grants)

    def passing_grants(
        self, grants: tuple[GuardedGrant, ...], row: ResolvedRow
    ) -> tuple[tuple[GuardedGrant, ...], list[Problem]]:
        """Return the grants whose validation a row passes, and the problems of the first failure.

        There are no problems if the row passes the validation of every grant.
        """
        passing: list[GuardedGrant] = []
        first_problems: list[Problem] = []
        for grant in grants:
            problems = self._grant_problems(grant, row)
            if not problems:
                passing.append(grant)
            first_problems = first_problems or problems
        return tuple(passing), first_problems

    def with_presets(
        self, grants: Iterable[Grant], collection: Collection, row: ResolvedRow
    ) -> ResolvedRow:
        """Return a row with the presets of permissions; of two for one field the first counts."""
        presets: dict[str, object] = {}
        values = dict(row.values)
        # In reverse order, so that the first permission overwrites the others.
        for grant in reversed(tuple(grants)):
            self._add_presets(grant, collection, row.sent, values, presets)
        return row._replace(values=values, presets=presets)

    def _add_presets(
        self,
        grant: Grant,
        collection: Collection,
        sent: Mapping[str, object],
        values: Values,
        presets: dict[str, object],
    ) -> None:
        """Add the presets of a permission to the values of a row, for fields that were not sent."""
        if not grant.presets:
            return
        never_preset = hooks_of(collection.name).never_preset
        for name, value in self._presets(grant).items():
            field = collection.fields.get(name)
            if field is None or field.column is None or name in sent:
                continue
            if name in never_preset:
                raise refuse_preset(grant, field, "no preset sets it")
            values[name] = None if value is None else convert_preset(grant, field, value)
            presets[name] = value

    def _passing_create_grants(
        self, collection: Collection, row: ResolvedRow
    ) -> tuple[tuple[GuardedGrant, ...], list[Problem]]:
        """Return the permissions that allow a new item, and if there are none its problems.

        Raises `Refused` FORBIDDEN if no permission covers all fields that were sent.
        """
        grants = grants_covering(self._permissions.grants(collection, "create"), row.sent_fields)
        if not grants:
            raise forbidden()
        passing, problems = self.passing_grants(grants, row)
        # One permission is enough: what others find wrong does not matter then.
        return passing, [] if passing else problems

    def _grant_problems(self, grant: GuardedGrant, row: ResolvedRow) -> list[Problem]:
        if grant.validation is None:
            return []
        presets = self._presets(grant)
        return self._validator.grant_problems(grant, row, presets)

    def _presets(self, grant: Grant) -> dict[str, object]:
        """Return the presets of a permission, with the values that their variables stand for.

        They are the same for all rows of a call.
        """
        if not grant.presets:
            return {}
        # By identity: a permission with presets has no hash.
        known_grant = self._known_presets.get(id(grant))
        if known_grant is None:
            known_grant = self._known_presets[id(grant)] = grant, self._bound_presets(grant)
        return known_grant[1]

    def _bound_presets(self, grant: Grant) -> dict[str, object]:
        operands = {name: preset_operand(value) for name, value in grant.presets.items()}
        values_by_path = self._validator.values_of(
            operand
            for operand in operands.values()
            if isinstance(operand, CallerValue) and operand.path
        )
        placeholders = [
            Placeholder(resolve_operand(operand, values_by_path), unchanged, name)
            for name, operand in operands.items()
        ]
        # Bound like the operands of a filter, so that $NOW means the same in both.
        values = bind_values(placeholders, self._context.bindings())
        return dict(zip(operands, values, strict=True))

    @cached_property
    def _writer(self) -> Writer:
        """Who writes, and when; all rows of a call are of the same moment."""
        return Writer.now(self._context.actor.user, self._context.actor.role)

    def _auto_filling(self, collection: Collection, *, is_new: bool) -> AutoFilling:
        auto_fields: AutoFields = self._context.snapshot.derived.setdefault_with(
            ("auto fields", collection.name, is_new),
            lambda: auto_fields_of(collection, new=is_new),
        )
        if not auto_fields.automatic:
            return AutoFilling(auto_fields, NO_AUTO_VALUES)
        return AutoFilling(auto_fields, auto_values_of(auto_fields, self._writer))
