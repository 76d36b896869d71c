"""Rules tried on payloads: validation of fields and permissions, conditions.

A rule is a filter like any other. It is about the values of a payload, never about the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from cms.errors import Problem, Refused, invalid_query
from cms.query.language.ast import (
    And,
    AtField,
    CallerValue,
    Filter,
    Operand,
    OperatorTest,
    Or,
    Some,
)
from cms.query.language.filters import parse_filter, require_not_blank
from cms.query.language.literals import Literals
from cms.query.language.operators import RULE_OPERATORS, Operator, Takes
from cms.query.language.relation_tests import has_item_test
from cms.query.plan.bindings import Bindings, Placeholder, bind_values
from cms.query.plan.checks import require_fit
from cms.query.plan.links import link_of
from cms.query.plan.resolved import Value
from cms.query.rules.evaluate import (
    ToComparable,
    call_function,
    fulfils,
    function_of,
    guess_type,
    guess_type_of_function,
    operand_reader,
    value_reader,
)
from cms.schema.field_names import FieldName
from cms.schema.model import Catalogue, Collection
from cms.schema.types import ALIAS


@dataclass(frozen=True, slots=True)
class PayloadRule:
    """A parsed rule: the tree, its literals, and the message of a payload that breaks it."""

    filter: Filter
    literals: tuple[object, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What a rule is tried with.

    Without a collection no field has a type, and values are compared by what they are. A field that
    is not sent has its value of `unsent_values`. Without one it is null when an item is created;
    when an item is changed, only `_submitted` looks at such a field. `caller_values` holds the
    values that paths from the caller (`caller_paths`) lead to.
    """

    collection: Collection | None = None
    catalogue: Catalogue | None = None
    is_creation: bool = True
    user: str | None = None
    role: str | None = None
    unsent_values: Mapping[str, object] = field(default_factory=dict)
    caller_values: Mapping[CallerValue, Sequence[object]] = field(default_factory=dict)


def parse_rule(
    value: object, *, parameter: str = "validation", message: str | None = None
) -> PayloadRule:
    """Return a rule given as nested dicts; None is no rule.

    Raises `Refused` INVALID_QUERY with the path to what is wrong.
    """
    literals = Literals()
    filter_value = {} if value is None else require_not_blank(_exact(value), parameter)
    parsed = parse_filter(filter_value, literals, parameter=parameter, operators=RULE_OPERATORS)
    return PayloadRule(parsed, tuple(literals.values), message)


def _exact(value: object) -> object:
    """Return a value with decimals for floats.

    Stored rules come with floats; all other numbers in the service keep all their digits.
    """
    match value:
        case float():
            return Decimal(repr(value))
        case dict():
            return {key: _exact(item) for key, item in value.items()}
        case list():
            return [_exact(item) for item in value]
        case _:
            return value


def parse_field_rule(name: str, value: object, *, message: str | None = None) -> PayloadRule:
    """Return the `validation` of a field; operators without a field name test the field itself."""
    rule = parse_rule(value, message=message)
    if has_item_test(rule.filter):
        return rule
    return replace(rule, filter=AtField(FieldName(name), rule.filter))


def failures(
    rule: PayloadRule, values: Mapping[str, object], context: RuleContext
) -> list[Problem]:
    """Return a FAILED_VALIDATION for each test that the values of an item fail.

    Values are as clients send them. Of an `_or` that no part fulfils, the problems of all parts are
    returned. Raises `Refused` INVALID_QUERY for a rule that does not fit the types of its fields.
    """
    bindings = Bindings(rule.literals, context.user, context.role)
    evaluation = _Evaluation(context, bindings, rule.message)
    return evaluation.failures(
        rule.filter, _CheckedValue(values, item_collection=context.collection)
    )


def caller_paths(rule: PayloadRule) -> frozenset[CallerValue]:
    """Return the paths from the caller that must be looked up before the rule is tried."""
    return frozenset(_paths(rule.filter, rule.literals))


def _paths(filter: Filter, literals: tuple[object, ...]) -> Iterator[CallerValue]:
    match filter:
        case And(items) | Or(items):
            for item in items:
                yield from _paths(item, literals)
        case AtField(_, inner) | Some(inner):
            yield from _paths(inner, literals)
        case OperatorTest(_, operands):
            for operand in operands:
                if isinstance(operand, CallerValue) and operand.path:
                    yield operand


@dataclass(frozen=True, slots=True)
class _CheckedValue:
    """The value that a part of a rule tests: its type, and the path to it.

    `item_collection` is the collection of the item that the value is. `is_untyped` marks the inside
    of a JSON value, which belongs to no field.
    """

    value: Any
    path: tuple[str, ...] = ()
    typed: Value | None = None
    item_collection: Collection | None = None
    was_sent: bool = True
    is_untyped: bool = False


@dataclass(frozen=True, slots=True)
class _Evaluation:
    context: RuleContext
    bindings: Bindings
    message: str | None

    def failures(self, filter: Filter, subject: _CheckedValue) -> list[Problem]:
        match filter:
            case And(items):
                return [problem for item in items for problem in self.failures(item, subject)]
            case Or(items):
                return self._any_of([self.failures(item, subject) for item in items], subject)
            case AtField(name, inner):
                return self._at_field(name, inner, subject)
            case Some(inner, negated):
                return self._some(inner, subject, "none" if negated else "some")
            case OperatorTest():
                return self._test(filter, subject)

    def _any_of(
        self, problems_by_part: list[list[Problem]], subject: _CheckedValue
    ) -> list[Problem]:
        if not problems_by_part:
            return [self._problem(subject, "or", {})]
        if [] in problems_by_part:
            return []
        return [problem for problems in problems_by_part for problem in problems]

    def _at_field(self, name: FieldName, inner: Filter, subject: _CheckedValue) -> list[Problem]:
        # A field name at a list means some item of it, as it does in SQL.
        if isinstance(subject.value, list):
            return self._some(AtField(name, inner), subject, "some")
        return self.failures(inner, self._step(name, subject))

    def _some(self, inner: Filter, subject: _CheckedValue, kind: str) -> list[Problem]:
        if not self._is_in_payload(subject):
            return []
        items = _items_of(subject.value)
        holds = any(not self.failures(inner, replace(subject, value=item)) for item in items)
        if holds == (kind == "some"):
            return []
        return [self._problem(subject, kind, {})]

    def _step(self, name: FieldName, subject: _CheckedValue) -> _CheckedValue:
        values: Mapping[str, object] = {}
        if isinstance(subject.value, Mapping):
            values = subject.value
        unsent = None
        # Values that were not sent are known of the item itself, not of items nested in it.
        if not subject.path:
            unsent = self.context.unsent_values.get(name.field)
        value = _CheckedValue(
            values.get(name.field, unsent),
            (*subject.path, name.field),
            was_sent=name.field in values,
            is_untyped=subject.is_untyped or subject.item_collection is None,
        )
        if subject.item_collection:
            value = self._with_field(value, name, subject.item_collection)
        if name.function:
            return self._function(name.function, value)
        return value

    def _with_field(
        self, value: _CheckedValue, name: FieldName, collection: Collection
    ) -> _CheckedValue:
        field = collection.fields.get(name.field)
        if field is None:
            reason = f'A rule names "{name.field}", which "{collection.name}" does not have'
            raise invalid_query(reason, collection=collection.name, field=name.field)
        return replace(value, typed=Value(field), item_collection=self._target_of(collection, name))

    def _target_of(self, collection: Collection, name: FieldName) -> Collection | None:
        """Return the collection of the items that a field leads to."""
        catalogue = self.context.catalogue
        if catalogue is None:
            return None
        link = link_of(catalogue, collection, name.field, name.target)
        return catalogue.collections.get(link.target) if link else None

    def _function(self, name: str, subject: _CheckedValue) -> _CheckedValue:
        typed = subject.typed
        field_type = typed.field.type if typed else guess_type_of_function(name)
        function = function_of(field_type, name)
        if function is None:
            raise invalid_query(
                f"There is no function {name} for the type {field_type.name}",
                place=_path_text(subject),
            )
        try:
            value = call_function(function, field_type, subject.value)
        except ValueError:
            value = None
        if typed:
            typed = replace(typed, function=function)
        return replace(subject, value=value, typed=typed)

    def _test(self, test: OperatorTest, subject: _CheckedValue) -> list[Problem]:
        if not subject.path:
            raise invalid_query("An operator needs a field to stand at", parameter="validation")
        operator = RULE_OPERATORS[test.operator]
        operands = [self._resolved(operand, operator) for operand in test.operands]
        if operator.takes is Takes.FLAG:
            passed = subject.was_sent == operands[0]
        else:
            passed = not self._is_in_payload(subject) or _passes(operator, subject, operands)
        if passed:
            return []
        # The caller may have no right to read what a path from the caller leads to.
        extension: Mapping[str, object] = {}
        if not any(isinstance(operand, CallerValue) for operand in test.operands):
            extension = _operand_extension(operator, operands)
        return [self._problem(subject, operator.name[1:], extension)]

    def _resolved(self, operand: Operand, operator: Operator) -> object:
        if isinstance(operand, CallerValue) and operand.path:
            values = tuple(self.context.caller_values.get(operand, ()))
            if operator.takes is Takes.LIST:
                return values
            # Without an item at the end of the path there is no value to compare with.
            return next(iter(values), None)
        return bind_values([Placeholder(operand, _as_it_is, "validation")], self.bindings)[0]

    def _is_in_payload(self, subject: _CheckedValue) -> bool:
        """Tell whether the payload sets the value: fields left out of a change stay as they are."""
        return (
            subject.was_sent
            or subject.value is not None
            or subject.is_untyped
            or self.context.is_creation
        )

    def _problem(self, subject: _CheckedValue, kind: str, operand: Mapping[str, object]) -> Problem:
        extensions: dict[str, object] = {}
        if self.context.collection:
            extensions["collection"] = self.context.collection.name
        extensions["field"] = next(iter(subject.path), None)
        extensions["path"] = list(subject.path)
        extensions["type"] = kind
        path = _path_text(subject)
        message = f'Validation failed for "{path}": the rule "{kind}" does not hold.'
        return Problem("FAILED_VALIDATION", self.message or message, {**extensions, **operand})


def _items_of(value: Any) -> list[Any]:
    """Return related items as a list: a to-one field is sent as the one item."""
    if isinstance(value, list):
        return value
    return [value] if value else []


def _as_it_is(operand: object) -> object:
    return tuple(operand) if isinstance(operand, list) else operand


def _passes(operator: Operator, subject: _CheckedValue, operands: Sequence[object]) -> bool:
    """Read value and operands as their type and compare them.

    A value of a wrong type passes nothing; the type itself is checked elsewhere. A value that
    belongs to no field passes nothing that it cannot be compared with.
    """
    typed = subject.typed
    is_item = typed is None or typed.type is ALIAS or subject.item_collection is not None
    # Related items are sent as objects or arrays, of which only emptiness and entries are tested.
    if is_item and isinstance(subject.value, list | dict):
        return operator.fits_items and fulfils(operator, subject.value, operands)
    # A list of related items has no type of its own, and may be null or empty all the same.
    if typed and not (typed.type is ALIAS and operator.takes is Takes.NOTHING):
        require_fit(operator, typed)
    read = value_reader(typed.type if typed else guess_type(subject.value, operands))
    try:
        comparable_operands = _read_operands(operator, operands, read)
    except ValueError as error:
        # Without a field nobody has said of which type the operands are.
        if typed is None:
            return False
        raise _misfit(error, operator, subject) from None
    try:
        value = None if subject.value is None else read(subject.value)
    except ValueError:
        return False
    return fulfils(operator, value, comparable_operands)


def _read_operands(
    operator: Operator, operands: Sequence[object], read: ToComparable
) -> list[object]:
    """Return operands as values to compare with; a variable without a value stays null."""
    read_operand = operand_reader(operator, read)
    return [None if operand is None else read_operand(operand) for operand in operands]


def _misfit(error: ValueError, operator: Operator, subject: _CheckedValue) -> Refused:
    path = f"{_path_text(subject)} {operator.name}"
    return invalid_query(f"The rule {path}: {error}", place=path)


def _path_text(subject: _CheckedValue) -> str:
    return ".".join(subject.path)


def _operand_extension(operator: Operator, operands: Sequence[object]) -> Mapping[str, object]:
    """Return the operands under the key of the extension that fits the operator."""
    if not operands or operator.takes is Takes.FLAG:
        return {}
    shown = [_as_json(operand) for operand in operands]
    if operator.takes is Takes.PATTERN:
        key = "substring"
    elif operator.is_negated:
        key = "invalid"
    else:
        key = "valid"
    if operator.takes is Takes.TWO:
        return {key: shown}
    return {key: shown[0]}


def _as_json(operand: object) -> object:
    if isinstance(operand, tuple | list):
        return [_as_json(item) for item in operand]
    # Only $NOW is no value of JSON.
    if isinstance(operand, datetime):
        return operand.isoformat()
    return operand
