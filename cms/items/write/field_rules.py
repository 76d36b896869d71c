"""The rules that the fields of a collection bring: `validation` and `conditions` (decisions, sections 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cms.errors import Problem, Refused
from cms.items.write.changes import RowChange
from cms.query.rules.conditions import Condition, field_state, parse_conditions
from cms.query.rules.validation import PayloadRule, RuleContext, failures, parse_field_rule
from cms.schema.defaults import default_of, is_computed
from cms.schema.model import Collection, Field

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The rules of one collection, `all_rules` all of them, and the defaults of its columns.

    Rules see `defaults`; of `computed` ones they know only that there will be something.
    """

    validations: tuple[PayloadRule, ...]
    conditions: tuple[tuple[Field, tuple[Condition, ...]], ...]
    all_rules: tuple[PayloadRule, ...]
    defaults: Json
    computed: frozenset[str]

    def validation_problems(self, values: Json, given: RuleContext) -> list[Problem]:
        """Return what is wrong with the values of an item by the validations."""
        return [problem for rule in self.validations for problem in failures(rule, values, given)]

    def missing_on_create(self, values: Json, given: RuleContext) -> list[Field]:
        """Return what a new item lacks: what its default computes is there."""
        unknown = self.computed - given.unsent_values.keys()
        return [found for found in self.missing_fields(values, given) if found.name not in unknown]

    def missing_fields(self, values: Json, given: RuleContext) -> list[Field]:
        """Return the fields that a condition requires and that hold nothing."""
        return [
            found
            for found, conditions in self.conditions
            if values.get(found.name, given.unsent_values.get(found.name)) is None
            and field_state(found.meta, conditions, values, given).required
        ]


def field_rules(collection: Collection) -> FieldRules:
    """Return the rules of a collection; raises `Refused` INVALID_QUERY for one that is none."""
    told = [(found, found.meta) for found in collection.fields.values() if found.meta]
    validations = tuple(
        _validation(found, meta) for found, meta in told if meta.get("validation") not in (None, {})
    )
    conditions = tuple(
        (found, _conditions(found, meta)) for found, meta in told if meta.get("conditions")
    )
    all_rules = (*validations, *(one.rule for _, several in conditions for one in several))
    columns = [(found, found.column) for found in collection.columns if found.column]
    computed = frozenset(found.name for found, column in columns if is_computed(column))
    defaults = {
        found.name: default_of(found, column)
        for found, column in columns
        if found.name not in computed
    }
    return FieldRules(validations, conditions, all_rules, defaults, computed)


def filled_values(rules: FieldRules, change: RowChange) -> Json:
    """Return what a new row holds where nothing is sent: what the service has filled, else the columns' defaults."""
    return {**rules.defaults, **change.values}


def _validation(found: Field, meta: Json) -> PayloadRule:
    with _naming_field(found):
        return parse_field_rule(found.name, meta["validation"], message=_message(meta))


def _conditions(found: Field, meta: Json) -> tuple[Condition, ...]:
    with _naming_field(found):
        return parse_conditions(meta)


@contextmanager
def _naming_field(found: Field) -> Iterator[None]:
    """Name the field whose rule cannot be read; only administrators hear it (`cms.access.problem_redaction`)."""
    try:
        yield
    except Refused as refused:
        owner = {"collection": found.collection, "field": found.name}
        raise Refused(
            replace(one, extensions={**one.extensions, **owner}) for one in refused.problems
        ) from None


def _message(meta: Json) -> str | None:
    said = meta.get("validation_message")
    return said if isinstance(said, str) and said else None
