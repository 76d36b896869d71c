"""Applies the rules of fields and the validations of permissions to payloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from cms import jsontext
from cms.access.guarded_rules import GuardedGrant
from cms.access.policy import Actor, Grant
from cms.database.connections import Fetch
from cms.errors import Problem
from cms.items.write.complete.caller_values import caller_values
from cms.items.write.complete.field_rules import FieldRules, field_rules, filled_values
from cms.items.write.complete.references import names_set_by, with_references
from cms.items.write.stages.problems import Problems
from cms.items.write.stages.resolved_rows import ResolvedRow
from cms.mappings import without
from cms.query.language.ast import CallerValue
from cms.query.rules.validation import RuleContext, failures
from cms.query.sql.locks import item_contents
from cms.schema.auto_fields import Writer, missing
from cms.schema.model import Collection, Json
from cms.store.context import RequestContext
from cms.store.fetching import fetch_fragment
from cms.store.store import Store
from cms.store.table_hooks import keys_of


@dataclass(frozen=True, slots=True)
class PayloadValidator:
    """Applies rules to the payloads of one call, for its caller.

    The values that paths from the caller lead to are fetched where `context` fetches.
    """

    store: Store
    _context: RequestContext
    _cache: CallCache

    def rules_of(self, collection: Collection) -> FieldRules:
        catalogue = self._context.snapshot.catalogue
        rules: FieldRules = self._context.snapshot.derived.setdefault_with(
            ("rules", collection.name), lambda: field_rules(collection, catalogue)
        )
        return rules

    def field_problems(
        self, rules: FieldRules, collection: Collection, row: ResolvedRow
    ) -> list[Problem]:
        """Return the problems of a row by those rules of fields that need no stored item."""
        values = self._with_references(collection, row.payload, row)
        rule_context = self._rule_context(rules.caller_paths, is_creation=row.is_new)
        # A change leaves what is stored: defaults are of new rows only.
        unsent_values: Json = {}
        if row.is_new:
            filled = filled_values(rules, row.values)
            unsent_values = self._with_references(collection, filled, row)
        rule_context = replace(rule_context, unsent_values=unsent_values)
        # Validations skip fields without any value, even those of a new item.
        problems = rules.validation_problems(values, replace(rule_context, is_creation=False))
        if row.is_new:
            problems += map(missing, rules.missing_on_create(values, rule_context))
        return problems

    def grant_problems(
        self, grant: GuardedGrant, collection: Collection, row: ResolvedRow, presets: Json
    ) -> list[Problem]:
        """Return the problems of a row by the validation of a permission, which must have one."""
        assert grant.validation is not None
        # What was sent comes before presets, and the reference to the owner before both.
        unsent = without(presets, names_set_by(collection, row.sent))
        values = self._with_references(
            collection, {**unsent, **row.sent, **row.owner_reference}, row
        )
        rule_context = self._rule_context(grant.validation.caller_paths, is_creation=row.is_new)
        return failures(grant.validation, values, rule_context)

    def check_conditions(
        self,
        collection: Collection,
        rows: Sequence[ResolvedRow],
        fetch: Fetch,
        problems: Problems,
    ) -> None:
        """Check the conditions of fields on whole items, as changes leave them.

        Locks the items. A required field that was empty before the change may stay empty, so that
        items from before a condition can still be changed.
        """
        rules = self.rules_of(collection)
        if not rules.conditions or not rows:
            return
        keys = keys_of(rows)
        contents = fetch_fragment(fetch, item_contents(collection, keys), self._context.bindings())
        stored: dict[object, Any] = {}
        for key, content in contents:
            item = jsontext.loads_stored(content)
            assert isinstance(item, dict)
            stored[key] = with_references(
                collection, item, self._context.snapshot.catalogue, is_new=True
            )
        # The whole item is known here: a field that it lacks is an empty one.
        rule_context = self._rule_context(rules.caller_paths, is_creation=True)
        for row in rows:
            before = stored.get(row.key, {})
            after = {**before, **self._with_references(collection, row.payload, row)}
            # A change may make a condition hold, which then requires fields that it leaves out.
            missing_before = rules.missing_fields(before, rule_context)
            for required in rules.missing_fields(after, rule_context):
                if required not in missing_before:
                    problems.add(missing(required), row.position)

    def _with_references(self, collection: Collection, payload: Json, row: ResolvedRow) -> Json:
        catalogue = self._context.snapshot.catalogue
        return with_references(collection, payload, catalogue, is_new=row.is_new)

    def values_of(self, paths: Iterable[CallerValue]) -> Mapping[CallerValue, tuple[object, ...]]:
        """Return the values that paths lead to; a call looks each path up only once.

        The answer may have more paths than these.
        """
        unknown = [path for path in paths if path not in self._cache.caller_values]
        if unknown:
            values = caller_values(self.store, self._context, unknown)
            self._cache.caller_values.update(values)
        return self._cache.caller_values

    def _rule_context(self, paths: Iterable[CallerValue], *, is_creation: bool) -> RuleContext:
        actor = self._context.actor
        return RuleContext(
            is_creation=is_creation,
            user=actor.user,
            role=actor.role,
            caller_values=self.values_of(paths),
        )


class BoundPresets(NamedTuple):
    """The presets of a permission, with the values that their variables stand for.

    The permission is kept alive because its `id` is a key of the cache: Python would give the
    number of a freed object to another one.
    """

    grant: Grant
    values: dict[str, object]


@dataclass
class CallCache:
    """Lookups of one call, each made once and so with the same result for all rows.

    `caller_values` are the values that paths from the caller lead to. `presets` are the bound
    presets of permissions, by the identities of these.
    """

    actor: Actor
    caller_values: dict[CallerValue, tuple[object, ...]] = field(default_factory=dict)
    presets: dict[int, BoundPresets] = field(default_factory=dict)

    @cached_property
    def writer(self) -> Writer:
        """The author and the time of the write; all rows of a call have the same time."""
        return Writer.now(self.actor.user, self.actor.role)
