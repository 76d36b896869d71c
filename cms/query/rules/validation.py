"""Rules tried on payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cms.errors import Problem, Refused
from cms.query.language.ast import And, CallerKey, CallerValue, Operand
from cms.query.language.operators import OperandKind, Operator
from cms.query.plan.bindings import Bindings
from cms.query.plan.conditions import entries
from cms.query.rules.evaluate import ToComparable, fulfils, guess_type, value_reader
from cms.query.rules.resolved_rules import (
    ResolvedFilter,
    ResolvedRule,
    RuleOr,
    RuleSome,
    RuleStep,
    RuleTest,
    Subject,
    UnfitRule,
    operand_value,
    read_operands,
)
from cms.schema.types.field_type import Trait
from cms.schema.types.json_members import json_type


@dataclass(frozen=True, slots=True)
class RuleContext:
    """The values that a rule sees besides those of the payload.

    A field that is not sent has its value of `unsent_values`. Without one it is null when an item
    is created; when an item is changed, only `_submitted` looks at such a field. `caller_values`
    holds the values that paths from the caller (`ResolvedRule.caller_paths`) lead to.
    """

    is_creation: bool = True
    user: str | None = None
    role: str | None = None
    unsent_values: Mapping[str, object] = field(default_factory=dict)
    caller_values: Mapping[CallerValue, Sequence[object]] = field(default_factory=dict)


def failures(
    rule: ResolvedRule, values: Mapping[str, object], context: RuleContext
) -> list[Problem]:
    """Return a FAILED_VALIDATION for each test that the values of an item fail.

    Values are as clients send them. Of an `_or` that no part fulfils, the problems of all parts are
    returned. Raises `Refused` INVALID_QUERY for a rule that does not fit the types of its fields.
    """
    return _RuleValidation(rule, context).failures(rule.filter, values, was_sent=True)


@dataclass(frozen=True, slots=True)
class _RuleValidation:
    rule: ResolvedRule
    context: RuleContext

    def failures(self, part: ResolvedFilter, value: Any, *, was_sent: bool) -> list[Problem]:
        match part:
            case RuleTest():
                return self._test(part, value, was_sent=was_sent)
            case RuleStep():
                return self._step(part, value, was_sent=was_sent)
            case And(items):
                problems: list[Problem] = []
                for item in items:
                    problems += self.failures(item, value, was_sent=was_sent)
                return problems
            case RuleOr():
                return self._any_of(part, value, was_sent=was_sent)
            case RuleSome(subject, inner, negated):
                kind = "none" if negated else "some"
                return self._some(subject, inner, value, kind=kind, was_sent=was_sent)
            case UnfitRule(problem):
                raise Refused(problem)

    def _any_of(self, alternatives: RuleOr, value: Any, *, was_sent: bool) -> list[Problem]:
        if not alternatives.items:
            return [self._problem(alternatives.subject, "or", {})]
        problems: list[Problem] = []
        is_fulfilled = False
        # All of them are tried: one that does not fit the types of its fields is refused.
        for item in alternatives.items:
            problems_of_item = self.failures(item, value, was_sent=was_sent)
            is_fulfilled = is_fulfilled or not problems_of_item
            problems += problems_of_item
        if is_fulfilled:
            return []
        return problems

    def _step(self, step: RuleStep, item: Any, *, was_sent: bool) -> list[Problem]:
        # A field name at a list means some item of it, as it does in SQL.
        if isinstance(item, list):
            return self._some(step.subject, step, item, kind="some", was_sent=was_sent)
        values: Mapping[str, object] = item if isinstance(item, Mapping) else {}
        unsent = None
        # Values that were not sent are known of the item itself, not of items nested in it.
        if not step.subject.path:
            unsent = self.context.unsent_values.get(step.name)
        value = values.get(step.name, unsent)
        if step.function:
            try:
                value = step.function(value)
            except ValueError:
                # A function of a malformed value is null; the type of the value itself is refused
                # elsewhere.
                value = None
        return self.failures(step.inner, value, was_sent=step.name in values)

    def _some(
        self, subject: Subject, inner: ResolvedFilter, value: Any, *, kind: str, was_sent: bool
    ) -> list[Problem]:
        if not self._is_in_payload(subject, value, was_sent=was_sent):
            return []
        items = _items_of(value)
        holds = any(not self.failures(inner, item, was_sent=was_sent) for item in items)
        if holds == (kind == "some"):
            return []
        return [self._problem(subject, kind, {})]

    def _test(self, test: RuleTest, value: Any, *, was_sent: bool) -> list[Problem]:
        operator = test.operator
        operands = test.values
        if operands is None:
            operands = tuple(self._operand(operand, operator) for operand in test.operands)
        # `_submitted` is about the payload itself, and so holds or not for whatever is sent.
        if operator.operand_kind is OperandKind.FLAG:
            passed = was_sent == operands[0]
        elif self._is_in_payload(test.subject, value, was_sent=was_sent):
            passed = _passes(test, value, operands)
        else:
            # A change that leaves the field out breaks no rule of it.
            passed = True
        if passed:
            return []
        extension: Mapping[str, object] = {}
        if not _compares_with_caller(test):
            extension = _operand_extension(operator, operands)
        return [self._problem(test.subject, operator.name[1:], extension)]

    def _operand(self, operand: Operand, operator: Operator) -> object:
        if isinstance(operand, CallerValue):
            values = tuple(self.context.caller_values.get(operand, ()))
            if operator.operand_kind is OperandKind.LIST:
                return values
            # Without an item at the end of the path there is no value to compare with.
            return next(iter(values), None)
        return operand_value(operand, Bindings((), self.context.user, self.context.role))

    def _is_in_payload(self, subject: Subject, value: object, *, was_sent: bool) -> bool:
        """Tell whether the payload sets the value: fields left out of a change stay as they are."""
        # A value that is not null although it was not sent comes from `unsent_values`: then the
        # whole item is known.
        return was_sent or value is not None or subject.is_untyped or self.context.is_creation

    def _problem(self, subject: Subject, kind: str, operand: Mapping[str, object]) -> Problem:
        extensions: dict[str, object] = {}
        if self.rule.collection:
            extensions["collection"] = self.rule.collection
        extensions["field"] = next(iter(subject.path), None)
        extensions["path"] = list(subject.path)
        extensions["type"] = kind
        message = f'Validation failed for "{subject.label}": the rule "{kind}" does not hold.'
        return Problem("FAILED_VALIDATION", self.rule.message or message, {**extensions, **operand})


def _compares_with_caller(test: RuleTest) -> bool:
    """Tell whether problems would show values of the caller, which may be hidden from it."""
    return any(isinstance(operand, CallerKey | CallerValue) for operand in test.operands)


def _items_of(value: Any) -> list[Any]:
    """Return related items as a list: a to-one field is sent as the one item."""
    if isinstance(value, list):
        return value
    if not value:
        return []
    return [value]


def _passes(test: RuleTest, value: Any, operands: tuple[object, ...]) -> bool:
    """Read value and operands as their type and compare them.

    A value of a wrong type passes nothing; the type itself is checked elsewhere. A value that
    belongs to no field fails every test with an operand to which it cannot be compared.
    """
    operator = test.operator
    # Related items are sent as objects or arrays, of which only emptiness and entries are tested.
    is_key = isinstance(value, list) and _is_of_key(test)
    if isinstance(value, list | dict) and test.is_item and not is_key:
        return operator.fits_items and fulfils(operator, value, operands)
    if test.problem:
        raise Refused(test.problem)
    read = test.read or value_reader(guess_type(value, operands))
    comparables = test.comparables
    # They are known beforehand, unless variables are among them or the value belongs to no field.
    if comparables is None:
        comparables = _comparables(test, operands, read)
        if comparables is None:
            return False
    if test.subject.value is not None and test.subject.value.at is not None:
        return fulfils_in_json(operator, value, operands, comparables)
    if value is None:
        return fulfils(operator, None, comparables)
    try:
        comparable = read(value)
    except ValueError:
        return False
    return fulfils(operator, comparable, comparables)


def _is_of_key(test: RuleTest) -> bool:
    """Tell whether the field of a test leads to one item by a key of several columns."""
    return test.subject.value is not None and bool(test.subject.value.field.parts)


def _comparables(
    test: RuleTest, operands: tuple[object, ...], read: ToComparable
) -> tuple[object, ...] | None:
    """Return the operands as values to compare with; None where the value cannot be compared."""
    try:
        return read_operands(test.operator, operands, read, test.subject)
    except Refused:
        # The type of a field refuses the operand. Without a field the type is only a guess.
        if test.subject.value is None:
            return None
        raise


def _operand_extension(operator: Operator, operands: Sequence[object]) -> Mapping[str, object]:
    """Return the operands under the key of the extension that fits the operator."""
    if not operands or operator.operand_kind is OperandKind.FLAG:
        return {}
    values = list(map(_as_json, operands))
    if operator.operand_kind is OperandKind.PATTERN:
        # The names of extensions are those of the interface: FAILED_VALIDATION has `valid`,
        # `invalid` or `substring`, by the kind of the operator.
        key = "substring"
    else:
        key = "invalid" if operator.is_negated else "valid"
    if operator.operand_kind is OperandKind.TWO:
        return {key: values}
    return {key: values[0]}


def _as_json(operand: object) -> object:
    if isinstance(operand, tuple | list):
        return list(map(_as_json, operand))
    # Only $NOW is no value of JSON.
    if isinstance(operand, datetime):
        return operand.isoformat()
    return operand


# Values inside of JSON


_SCALARS = ("string", "number", "boolean")


def fulfils_in_json(
    operator: Operator, value: Any, operands: Sequence[Any], comparables: Sequence[Any]
) -> bool:
    """Tell whether a value inside of JSON fulfils an operator.

    `comparables` are the operands as they are read for the comparison.
    """
    kind = operator.operand_kind
    if value is None or kind is OperandKind.NOTHING:
        return fulfils(operator, value, comparables)
    if None in comparables:  # a variable without a value
        return False
    if kind is OperandKind.PATTERN and isinstance(value, list):
        return _tests_entries(operator, value, operands[0])
    if kind in (OperandKind.PATTERN, OperandKind.REGEX):
        return isinstance(value, str) and fulfils(operator, value, comparables)
    if operator.trait is Trait.CASE:
        return isinstance(value, str) and fulfils(operator, value, [str(comparables[0])])
    if kind is OperandKind.LIST:
        return _fulfils_list(operator, value, comparables[0])
    own_type = json_type(value)
    if own_type not in _SCALARS or {own_type} != set(map(json_type, comparables)):
        return False
    return fulfils(operator, value, comparables)


def _fulfils_list(operator: Operator, value: Any, items: Sequence[Any]) -> bool:
    own_type = json_type(value)
    # To Python true is the number 1.
    items_of_type = [item for item in items if json_type(item) == own_type]
    # Between types nothing holds, while `_nin` of nothing holds for every value.
    if items and not items_of_type:
        return False
    return fulfils(operator, value, [items_of_type])


def _tests_entries(operator: Operator, values: list[Any], operand: object) -> bool:
    """Tell whether an array has an entry, or has none; other tests of texts hold for no array."""
    if operator.trait is not Trait.PARTS:
        return False
    wanted = list(map(_typed, entries(operand)))
    has_entry = any(_typed(value) in wanted for value in values)
    return has_entry != operator.is_negated


def _typed(value: object) -> tuple[str, object]:
    # To Python true is the number 1.
    return json_type(value), value
