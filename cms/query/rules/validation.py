"""Rules tried on payloads: validation of fields and permissions, conditions (decisions, sections 2,
4 and 6).

A rule is a filter of the one language. It speaks of what a payload says and never of what the
database holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from cms.errors import Problem, Refused, invalid_query
from cms.query.language.ast import (
    AboutItem,
    And,
    AtField,
    CallerValue,
    FieldName,
    Filter,
    Operand,
    OperatorTest,
    Or,
    Some,
)
from cms.query.language.filters import parse_filter, require_not_blank
from cms.query.language.literals import Literals
from cms.query.language.operators import RULE_OPERATORS, Operator, Takes
from cms.query.plan.bindings import Bindings, Placeholder, bind_values
from cms.query.plan.checks import require_fit
from cms.query.plan.links import has_item_test, link_of
from cms.query.plan.resolved import Value
from cms.query.rules.evaluate import (
    call_function,
    fulfils,
    guess_type,
    operand_reader,
    takes_function,
    value_reader,
)
from cms.schema.model import Catalogue, Collection
from cms.schema.types import TYPES, Family


@dataclass(frozen=True, slots=True)
class PayloadRule:
    """A parsed rule: the tree, the literals that its slots point to, and what to say when it is
    broken.
    """

    filter: Filter
    literals: tuple[object, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What a rule is tried under.

    Without a collection no field has a type, and values are compared by what they are. A field that
    is not sent has its value of `unsent_values`; without one it is null when an item is created,
    and when it is changed only `_submitted` speaks of it. `caller_values` holds what paths from the
    caller (`caller_paths`) lead to.
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
    """Return a rule given as nested dicts, None being no rule; raises `Refused` INVALID_QUERY with
    a fault's place.
    """
    literals = Literals()
    given = {} if value is None else require_not_blank(_exact(value), parameter)
    found = parse_filter(given, literals, parameter=parameter, operators=RULE_OPERATORS)
    return PayloadRule(found, tuple(literals.values), message)


def _exact(value: object) -> object:
    """Rules of the catalogue come with floats, where everything else has numbers with all their
    digits.
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
    """Return the `validation` of a field: operators without a field in it are meant of the field
    itself.
    """
    rule = parse_rule(value, message=message)
    return (
        rule
        if has_item_test(rule.filter)
        else replace(rule, filter=AtField(FieldName(name), rule.filter))
    )


def failures(rule: PayloadRule, values: Mapping[str, object], given: RuleContext) -> list[Problem]:
    """Return one FAILED_VALIDATION for each test that the values of an item fail, none when they
    keep the rule.

    Values are as clients send them. Of an `_or` that no part fulfils all parts are told. Raises
    `Refused` INVALID_QUERY for a rule that does not fit the types of its fields.
    """
    trial = _Evaluation(given, Bindings(rule.literals, given.user, given.role), rule.message)
    return trial.failures(rule.filter, _CheckedValue(values, item_collection=given.collection))


def caller_paths(rule: PayloadRule) -> frozenset[CallerValue]:
    """Return the paths from the caller that must be looked up before the rule is tried."""
    return frozenset(_paths(rule.filter, rule.literals))


def _paths(said: Filter, literals: tuple[object, ...]) -> Iterator[CallerValue]:
    match said:
        case And(items) | Or(items):
            for item in items:
                yield from _paths(item, literals)
        case AtField(_, inner) | Some(inner):
            yield from _paths(inner, literals)
        case OperatorTest(_, operands):
            yield from (
                found for found in operands if isinstance(found, CallerValue) and found.path
            )


@dataclass(frozen=True, slots=True)
class _CheckedValue:
    """What a part of a rule speaks of: a value and how it is read, and where it stands.

    `item_collection` is the collection whose item it is; `is_untyped` marks the inside of a json
    value, which no field describes.
    """

    value: Any
    path: tuple[str, ...] = ()
    typed: Value | None = None
    item_collection: Collection | None = None
    was_sent: bool = True
    is_untyped: bool = False


@dataclass(frozen=True, slots=True)
class _Evaluation:
    given: RuleContext
    bindings: Bindings
    message: str | None

    def failures(self, said: Filter, subject: _CheckedValue) -> list[Problem]:
        match said:
            case And(items):
                return [problem for item in items for problem in self.failures(item, subject)]
            case Or(items):
                return self._any_of([self.failures(item, subject) for item in items], subject)
            case AtField(name, inner):
                return self._at_field(name, inner, subject)
            case Some(inner, negated):
                return self._some(inner, subject, "none" if negated else "some")
            case OperatorTest():
                return self._test(said, subject)
            case AboutItem():
                raise AssertionError("only the guard says this")

    def _any_of(self, found: list[list[Problem]], subject: _CheckedValue) -> list[Problem]:
        if not found:
            return [self._problem(subject, "or", {})]
        return [] if [] in found else [problem for problems in found for problem in problems]

    def _at_field(self, name: FieldName, inner: Filter, subject: _CheckedValue) -> list[Problem]:
        if isinstance(subject.value, list):
            return self._some(AtField(name, inner), subject, "some")
        return self.failures(inner, self._step(name, subject))

    def _some(self, inner: Filter, subject: _CheckedValue, kind: str) -> list[Problem]:
        if not self._is_in_payload(subject):
            return []
        items = (
            subject.value
            if isinstance(subject.value, list)
            else [subject.value]
            if subject.value
            else []
        )
        found = any(not self.failures(inner, replace(subject, value=item)) for item in items)
        return [] if found == (kind == "some") else [self._problem(subject, kind, {})]

    def _step(self, name: FieldName, subject: _CheckedValue) -> _CheckedValue:
        values = subject.value if isinstance(subject.value, Mapping) else {}
        path = (*subject.path, name.base_field)
        is_untyped = subject.is_untyped or subject.item_collection is None
        unsent = None if subject.path else self.given.unsent_values.get(name.base_field)
        below = _CheckedValue(
            values.get(name.base_field, unsent),
            path,
            was_sent=name.base_field in values,
            is_untyped=is_untyped,
        )
        if subject.item_collection:
            below = self._with_field(below, name, subject.item_collection)
        return self._function(name.function, below) if name.function else below

    def _with_field(
        self, below: _CheckedValue, name: FieldName, collection: Collection
    ) -> _CheckedValue:
        known = collection.fields.get(name.base_field)
        if known is None:
            reason = f'A rule names "{name.base_field}", which "{collection.name}" does not have'
            raise invalid_query(reason, collection=collection.name, field=name.base_field)
        link = (
            link_of(self.given.catalogue, collection, name.field) if self.given.catalogue else None
        )
        target = (
            self.given.catalogue.collections.get(link.target)
            if self.given.catalogue and link
            else None
        )
        return replace(below, typed=Value(known), item_collection=target)

    def _function(self, function: str, subject: _CheckedValue) -> _CheckedValue:
        typed = subject.typed
        kind = typed.field.type if typed else TYPES["json" if function == "count" else "timestamp"]
        if not takes_function(function, kind):
            raise invalid_query(
                f"There is no function {function} for the type {kind.name}", place=_place(subject)
            )
        try:
            value = call_function(function, kind, subject.value)
        except ValueError:
            value = None
        return replace(
            subject, value=value, typed=replace(typed, function=function) if typed else None
        )

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
        # What a path from the caller leads to, the caller may not be able to read.
        told = (
            {}
            if any(isinstance(operand, CallerValue) for operand in test.operands)
            else _operand_extension(operator, operands)
        )
        return [self._problem(subject, operator.name[1:], told)]

    def _resolved(self, operand: Operand, operator: Operator) -> object:
        if isinstance(operand, CallerValue) and operand.path:
            found = tuple(self.given.caller_values.get(operand, ()))
            return found if operator.takes is Takes.LIST else next(iter(found), None)
        return bind_values([Placeholder(operand, _as_it_is, "validation")], self.bindings)[0]

    def _is_in_payload(self, subject: _CheckedValue) -> bool:
        """Whether the payload speaks of it: what is left out of a change stays as it is."""
        return (
            subject.was_sent
            or subject.value is not None
            or subject.is_untyped
            or self.given.is_creation
        )

    def _problem(self, subject: _CheckedValue, kind: str, operand: Mapping[str, object]) -> Problem:
        place = _place(subject)
        said = self.message or f'Validation failed for "{place}": the rule "{kind}" does not hold.'
        extensions = {
            "field": subject.path[0] if subject.path else None,
            "path": list(subject.path),
            "type": kind,
        }
        collection = {"collection": self.given.collection.name} if self.given.collection else {}
        return Problem("FAILED_VALIDATION", said, {**collection, **extensions, **operand})


def _as_it_is(found: object) -> object:
    return tuple(found) if isinstance(found, list) else found


def _passes(operator: Operator, subject: _CheckedValue, operands: Sequence[object]) -> bool:
    """Read value and operands as their type and compare them.

    A value that is not of its field's type is told elsewhere, and passes nothing; neither does one
    without a field that cannot be compared with the operand.
    """
    typed = subject.typed
    related = typed is None or typed.family is Family.ALIAS or subject.item_collection is not None
    if related and isinstance(subject.value, list | dict):
        return operator.name in _OF_LISTS and fulfils(operator, subject.value, operands)
    if typed and not (typed.family is Family.ALIAS and operator.takes is Takes.NOTHING):
        require_fit(operator, typed)
    kind = typed.type if typed else guess_type(subject.value, operands)
    read = value_reader(kind, typed.cast if typed else kind.cast)
    try:
        found = [
            None if operand is None else operand_reader(operator, read)(operand)
            for operand in operands
        ]
    except ValueError as error:
        if typed is None:
            return False
        raise _misfit(error, operator, subject) from None
    try:
        value = None if subject.value is None else read(subject.value)
    except ValueError:
        return False
    return fulfils(operator, value, found)


_OF_LISTS = frozenset({"_null", "_nnull", "_empty", "_nempty", "_contains", "_ncontains"})
"""What related items take, and arrays and objects that no field describes."""


def _misfit(error: ValueError, operator: Operator, subject: _CheckedValue) -> Refused:
    place = f"{_place(subject)} {operator.name}"
    return invalid_query(f"The rule {place}: {error}", place=place)


def _place(subject: _CheckedValue) -> str:
    return ".".join(subject.path)


def _operand_extension(operator: Operator, operands: Sequence[object]) -> Mapping[str, object]:
    """Return what was asked for, under the key that says how."""
    if not operands or operator.takes is Takes.FLAG:
        return {}
    told = [_as_json(operand) for operand in operands]
    key = (
        "substring"
        if operator.takes is Takes.PATTERN
        else "invalid"
        if operator.name.startswith("_n")
        else "valid"
    )
    return {key: told if operator.takes is Takes.TWO else told[0]}


def _as_json(operand: object) -> object:
    if isinstance(operand, tuple | list):
        return [_as_json(item) for item in operand]
    return operand.isoformat() if hasattr(operand, "isoformat") else operand
