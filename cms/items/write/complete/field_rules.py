"""The rules of the fields of a collection: `validation` and `conditions`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from cms.errors import Problem, Refused
from cms.query.language.ast import CallerValue
from cms.query.rules.field_conditions import Condition, field_state, parse_conditions
from cms.query.rules.payload_rules import PayloadRule, parse_field_rule
from cms.query.rules.resolved_rules import ResolvedRule, resolve_rule
from cms.query.rules.validation import RuleContext, failures
from cms.schema.defaults import default_of, is_computed
from cms.schema.model import Catalogue, Collection, Field, Json
from cms.schema.payload import RowValues


class FieldConditions(NamedTuple):
    """A field with its conditions."""

    field: Field
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The rules of one collection's fields, and the defaults of its columns.

    `caller_paths` are the paths from the caller that any of the rules compares with. Rules see the
    `defaults` of fields that were not sent. Fields in `computed` have defaults that the database
    computes: rules know only that there will be a value.
    """

    validations: tuple[ResolvedRule, ...]
    conditions: tuple[FieldConditions, ...]
    has_rules: bool
    caller_paths: frozenset[CallerValue]
    defaults: Json
    computed: frozenset[str]

    def validation_problems(self, values: Json, context: RuleContext) -> list[Problem]:
        """Return the problems of an item by the validations."""
        problems: list[Problem] = []
        for rule in self.validations:
            problems += failures(rule, values, context)
        return problems

    def missing_on_create(self, values: Json, context: RuleContext) -> list[Field]:
        """Return the required fields that a new item lacks, without those that are computed."""
        # A computed field that a preset or the service has set is known, and checked.
        unknown = self.computed - context.unsent_values.keys()
        missing = self.missing_fields(values, context)
        return [field for field in missing if field.name not in unknown]

    def missing_fields(self, values: Json, context: RuleContext) -> list[Field]:
        """Return the fields that a condition requires and that hold nothing."""
        missing: list[Field] = []
        for field, conditions in self.conditions:
            value = values.get(field.name, context.unsent_values.get(field.name))
            # Conditions decide per item whether the field is required.
            if value is None and field_state(field.meta, conditions, values, context).required:
                missing.append(field)
        return missing


def field_rules(collection: Collection, catalogue: Catalogue) -> FieldRules:
    """Return the rules of a collection; raises `Refused` INVALID_QUERY for an invalid one."""
    # First all validations: of several invalid rules the first is reported.
    validations = tuple(_validations(collection, catalogue))
    conditions = tuple(_conditions_of_fields(collection, catalogue))
    rules = list(validations)
    for conditional in conditions:
        for condition in conditional.conditions:
            rules.append(condition.rule)
    caller_paths: set[CallerValue] = set()
    for rule in rules:
        caller_paths |= rule.caller_paths
    defaults: dict[str, object] = {}
    computed: set[str] = set()
    for field in collection.columns:
        if field.column is None:
            continue
        if is_computed(field.column):
            # As nextval(…) or now(): there is no value before the insert.
            computed.add(field.name)
        else:
            defaults[field.name] = default_of(field, field.column)
    return FieldRules(
        validations,
        conditions,
        bool(rules or conditions),
        frozenset(caller_paths),
        defaults,
        frozenset(computed),
    )


def filled_values(rules: FieldRules, values: RowValues) -> Json:
    """Return the values of a new row as rules see them where nothing is sent.

    They are the values of its columns, automatic ones included, and the defaults of all others.
    """
    return {**rules.defaults, **values}


def _validations(collection: Collection, catalogue: Catalogue) -> Iterator[ResolvedRule]:
    """Yield the validations of fields, each a rule such as {"_regex": "^[a-z]+$"}."""
    for field in collection.fields.values():
        meta = field.meta or {}
        # An empty rule demands nothing.
        if meta.get("validation") not in (None, {}):
            yield resolve_rule(_validation(field, meta), collection, catalogue)


def _conditions_of_fields(
    collection: Collection, catalogue: Catalogue
) -> Iterator[FieldConditions]:
    """Yield the fields with conditions, which are rules with their effects.

    As in [{"rule": {"status": {"_eq": "published"}}, "required": true}].
    """
    for field in collection.fields.values():
        meta = field.meta or {}
        # Whether a column is required is tried without rules (`AutoFields`).
        if meta.get("conditions") or (field.parts and meta.get("required")):
            yield FieldConditions(field, _conditions(field, meta, collection, catalogue))


def _validation(field: Field, meta: Json) -> PayloadRule:
    message = meta.get("validation_message")
    # An empty one leaves the sentence to the rule.
    if not isinstance(message, str) or not message:
        message = None
    with _naming_field(field):
        return parse_field_rule(field.name, meta["validation"], message=message)


def _conditions(
    field: Field, meta: Json, collection: Collection, catalogue: Catalogue
) -> tuple[Condition, ...]:
    with _naming_field(field):
        return parse_conditions(meta, collection, catalogue)


@contextmanager
def _naming_field(field: Field) -> Iterator[None]:
    """Name the field whose rule is invalid.

    Only administrators see the name (`cms.access.problem_redaction`).
    """
    try:
        yield
    except Refused as refused:
        owner = {"collection": field.collection, "field": field.name}
        problems: list[Problem] = []
        for problem in refused.problems:
            extensions = {**problem.extensions, **owner}
            problems.append(replace(problem, extensions=extensions))
        raise Refused(problems) from None
