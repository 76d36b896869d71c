"""The rules that the fields of a collection bring: `validation` and `conditions` (decisions, sections 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cms.errors import Problem, Refused
from cms.query.conditions import Condition, parse_conditions, state_of
from cms.query.drafts import Draft
from cms.query.validation import Given, Rule, failures, parse_field_rule
from cms.schema.defaults import default_of, is_computed
from cms.schema.model import Collection, Field

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The rules of one collection, `tried` all of them, and the defaults of its columns.

    Rules see `defaults`; of `computed` ones they know only that there will be something.
    """

    validations: tuple[Rule, ...]
    conditions: tuple[tuple[Field, tuple[Condition, ...]], ...]
    tried: tuple[Rule, ...]
    defaults: Json
    computed: frozenset[str]

    def broken(self, values: Json, given: Given) -> list[Problem]:
        """Return what is wrong with the values of an item by the validations."""
        return [problem for rule in self.validations for problem in failures(rule, values, given)]

    def lacking_new(self, values: Json, given: Given) -> list[Field]:
        """Return what a new item lacks: what its default computes is there."""
        unknown = self.computed - given.filled.keys()
        return [found for found in self.lacking(values, given) if found.name not in unknown]

    def lacking(self, values: Json, given: Given) -> list[Field]:
        """Return the fields that a condition requires and that hold nothing."""
        return [
            found
            for found, conditions in self.conditions
            if values.get(found.name, given.filled.get(found.name)) is None
            and state_of(found.meta, conditions, values, given).required
        ]


def field_rules(collection: Collection) -> FieldRules:
    """Return the rules of a collection; raises `Refused` INVALID_QUERY for one that is none."""
    told = [(found, found.meta) for found in collection.fields.values() if found.meta]
    validations = tuple(_validation(found, meta) for found, meta in told if meta.get("validation") not in (None, {}))
    conditions = tuple((found, _conditions(found, meta)) for found, meta in told if meta.get("conditions"))
    tried = (*validations, *(one.rule for _, several in conditions for one in several))
    columns = [(found, found.column) for found in collection.columns if found.column]
    computed = frozenset(found.name for found, column in columns if is_computed(column))
    defaults = {found.name: default_of(found, column) for found, column in columns if found.name not in computed}
    return FieldRules(validations, conditions, tried, defaults, computed)


def filled(rules: FieldRules, draft: Draft) -> Json:
    """Return what a new row holds where nothing is sent: what the service has filled, else the columns' defaults."""
    return {**rules.defaults, **draft.values}


def _validation(found: Field, meta: Json) -> Rule:
    with _naming(found):
        return parse_field_rule(found.name, meta["validation"], message=_message(meta))


def _conditions(found: Field, meta: Json) -> tuple[Condition, ...]:
    with _naming(found):
        return parse_conditions(meta)


@contextmanager
def _naming(found: Field) -> Iterator[None]:
    """Name the field whose rule cannot be read; only administrators hear it (`cms.access.discretion`)."""
    try:
        yield
    except Refused as refused:
        owner = {"collection": found.collection, "field": found.name}
        raise Refused(replace(one, extensions={**one.extensions, **owner}) for one in refused.problems) from None


def _message(meta: Json) -> str | None:
    said = meta.get("validation_message")
    return said if isinstance(said, str) and said else None
