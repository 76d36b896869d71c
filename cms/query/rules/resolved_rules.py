"""Rules on payloads, resolved: names are fields, and operands that never change are read.

A rule is resolved once for a structure, and tried on every payload. It may name missing fields or
compare types that do not fit, because fields change after it was written. Such a part is refused
only when a payload reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cms.errors import Problem, Refused, invalid_query
from cms.query.language.ast import (
    And,
    AtField,
    CallerKey,
    CallerValue,
    Constant,
    Filter,
    Now,
    Operand,
    OperatorTest,
    Or,
    PlainOperand,
    Some,
)
from cms.query.language.operators import NO_FIELD, RULE_OPERATORS, OperandKind, Operator
from cms.query.plan.bindings import Bindings, Placeholder, bind_values
from cms.query.plan.conditions import require_fit
from cms.query.plan.links import link_of
from cms.query.plan.read_plan import JsonPath, Value
from cms.query.rules.evaluate import (
    ToComparable,
    call_function,
    function_of,
    guess_type_of_function,
    operand_reader,
    value_reader,
)
from cms.query.rules.payload_rules import PayloadRule
from cms.schema.model import Catalogue, Collection
from cms.schema.names import DottedName, FieldName, dotted_name
from cms.schema.reasons import not_one_of
from cms.schema.types import ALIAS
from cms.schema.types.field_type import FieldFunction, FieldType, Trait
from cms.schema.types.json_members import value_at
from cms.schema.types.texts import CITEXT


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a test in a rule: the value at the end of a path, and its type if known.

    `value` is None where no field tells the type. `collection` is that of the item (or items) that
    the value is. `is_untyped` marks the inside of a JSON value, which belongs to no field.
    """

    path: tuple[str, ...] = ()
    value: Value | None = None
    collection: Collection | None = None
    is_untyped: bool = False

    @property
    def label(self) -> str:
        """The path as problems show it."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class RuleOr:
    """At least one part holds."""

    subject: Subject
    items: tuple[ResolvedFilter, ...]


@dataclass(frozen=True, slots=True)
class RuleStep:
    """The inner rule holds for a member of the item, or for a function of it.

    The value at a path into JSON counts as a function of the field.
    """

    subject: Subject
    name: str
    function: Callable[[Any], Any] | None
    inner: ResolvedFilter


@dataclass(frozen=True, slots=True)
class RuleSome:
    """The inner rule holds for at least one item of a list, or for none when `negated`."""

    subject: Subject
    inner: ResolvedFilter
    negated: bool


@dataclass(frozen=True, slots=True)
class RuleTest:
    """An operator with its operands.

    `values` are the operands where they are the same in every request, else None. `read` makes the
    value comparable, and `comparables` are the `values` read by it; both are None where the type
    depends on the payload. `problem` tells why the value can never be compared.
    """

    subject: Subject
    operator: Operator
    operands: tuple[Operand, ...]
    values: tuple[object, ...] | None
    read: ToComparable | None
    comparables: tuple[object, ...] | None
    problem: Problem | None

    @property
    def is_item(self) -> bool:
        """Whether the value may be sent as an object or array of related items."""
        subject = self.subject
        if subject.value is None or subject.collection is not None:
            return True
        return subject.value.type is ALIAS


@dataclass(frozen=True, slots=True)
class UnfitRule:
    """A part that fits no field."""

    problem: Problem


ResolvedFilter = And["ResolvedFilter"] | RuleOr | RuleStep | RuleSome | RuleTest | UnfitRule


@dataclass(frozen=True, slots=True)
class ResolvedRule:
    """A rule for the items of one collection; without a collection no field has a type.

    `caller_paths` are the paths from the caller whose values it compares with.
    """

    filter: ResolvedFilter
    collection: str | None
    message: str | None
    caller_paths: frozenset[CallerValue]


def resolve_rule(
    rule: PayloadRule, collection: Collection | None = None, catalogue: Catalogue | None = None
) -> ResolvedRule:
    """Resolve a rule for the items of a collection; it never fails.

    Without the catalogue no field leads to another collection.
    """
    subject = Subject(collection=collection)
    return ResolvedRule(
        _RuleResolver(catalogue).resolve(rule.filter, subject),
        collection.name if collection else None,
        rule.message,
        frozenset(_caller_paths(rule.filter)),
    )


def _caller_paths(filter: Filter) -> Iterator[CallerValue]:
    match filter:
        case And(items) | Or(items):
            for item in items:
                yield from _caller_paths(item)
        case AtField(_, inner) | Some(inner):
            yield from _caller_paths(inner)
        case OperatorTest(_, operands):
            # A path stands alone: lists hold no more than the caller's own keys.
            for operand in operands:
                if isinstance(operand, CallerValue):
                    yield operand


@dataclass(frozen=True, slots=True)
class _RuleResolver:
    catalogue: Catalogue | None

    def resolve(self, filter: Filter, subject: Subject) -> ResolvedFilter:
        match filter:
            case And(items):
                return And(self._resolve_all(items, subject))
            case Or(items):
                return RuleOr(subject, self._resolve_all(items, subject))
            case Some(inner, negated):
                return RuleSome(subject, self.resolve(inner, subject), negated)
            case AtField(name, inner):
                return self._step(name, inner, subject)
            case OperatorTest():
                return _test(filter, subject)

    def _resolve_all(
        self, filters: tuple[Filter, ...], subject: Subject
    ) -> tuple[ResolvedFilter, ...]:
        return tuple(self.resolve(filter, subject) for filter in filters)

    def _step(self, name: FieldName, inner: Filter, subject: Subject) -> RuleStep:
        path = _path_behind_field(name, subject.collection)
        if path is not None:
            return self._path_step(path, inner, subject)
        try:
            member = self._member(name, subject)
            if not name.function:
                return RuleStep(subject, name.field, None, self.resolve(inner, member))
            value = member.value
            field_type = value.field.type if value else guess_type_of_function(name.function)
            function = _function_of(field_type, name.function, member)
        except Refused as refused:
            # Only a payload that reaches this part is refused: other parts of the rule still apply.
            return RuleStep(subject, name.field, None, UnfitRule(refused.problems[0]))
        # The test is of the result, whose type differs from that of the field.
        if value:
            member = replace(member, value=replace(value, function=function))
        call = partial(call_function, function, field_type)
        return RuleStep(subject, name.field, call, self.resolve(inner, member))

    def _path_step(self, path: DottedName, inner: Filter, subject: Subject) -> RuleStep:
        assert subject.collection
        field = subject.collection.fields[path.head.field]
        if Trait.JSON not in field.type.traits:
            # `author.meta.price` is the same as `meta.price` inside of `author`.
            return self._step(path.head, AtField(path.rest, inner), subject)
        value = Value(field, at=JsonPath(path.steps))
        inside = Subject((*subject.path, field.name, *path.steps), value)
        function = partial(value_at, steps=path.steps)
        return RuleStep(subject, field.name, function, self.resolve(inner, inside))

    def _member(self, name: FieldName, subject: Subject) -> Subject:
        path = (*subject.path, name.field)
        collection = subject.collection
        # Inside of a JSON value, or of values that are items of no collection.
        if collection is None:
            return Subject(path, is_untyped=True)
        field = collection.fields.get(name.field)
        if field is None:
            reason = f'A rule names "{name.field}", which "{collection.name}" does not have'
            raise invalid_query(reason, collection=collection.name, field=name.field)
        return Subject(path, Value(field), self._target_of(collection, name))

    def _target_of(self, collection: Collection, name: FieldName) -> Collection | None:
        """Return the collection of the items that a field leads to."""
        if self.catalogue is None:
            return None
        link = link_of(self.catalogue, collection, name.field, name.target)
        if not link:
            return None
        return self.catalogue.collections.get(link.target)


def _path_behind_field(name: FieldName, collection: Collection | None) -> DottedName | None:
    """Return a name with a dot taken apart; None for others, and where it begins with no field."""
    if collection is None or name.function:
        return None
    dotted = dotted_name(name, collection.fields.__contains__)
    if dotted is None or dotted.head.written not in collection.fields:
        return None
    return dotted


def _function_of(field_type: FieldType, name: str, subject: Subject) -> FieldFunction:
    function = function_of(field_type, name)
    if function is None:
        raise invalid_query(
            f"There is no function {name} for the type {field_type.name}", place=subject.label
        )
    return function


def _test(test: OperatorTest, subject: Subject) -> ResolvedFilter:
    if not subject.path:
        refused = invalid_query(NO_FIELD, parameter="validation")
        return UnfitRule(refused.problems[0])
    operator = RULE_OPERATORS[test.operator]
    # Without variables they are read now, and not again for each payload.
    values = _fixed_values(test.operands)
    # The test without any known type; the known parts are filled in below.
    unread = RuleTest(subject, operator, test.operands, values, None, None, None)
    # Of a value without a field the type is guessed, by the value itself.
    if subject.value is None:
        return unread
    # A list of related items has no type of its own, and may be null or empty all the same.
    fits_all = subject.value.type is ALIAS and operator.operand_kind is OperandKind.NOTHING
    try:
        if not fits_all:
            require_fit(operator, subject.value)
        operator = _as_compared(operator, subject.value)
        read = _reader(operator, subject.value)
        comparables = None
        if values is not None:
            comparables = read_operands(operator, values, read, subject)
    except Refused as refused:
        return replace(unread, problem=refused.problems[0])
    return replace(unread, operator=operator, read=read, comparables=comparables)


def _as_compared(operator: Operator, value: Value) -> Operator:
    """Return an operator as the type compares: a pattern ignores case where the type does."""
    if value.type is not CITEXT or operator.operand_kind is not OperandKind.PATTERN:
        return operator
    name = operator.name
    name = f"_ni{name[2:]}" if operator.is_negated else f"_i{name[1:]}"
    alike = RULE_OPERATORS.get(name, operator)
    return replace(operator, compare=alike.compare)


def _reader(operator: Operator, value: Value) -> ToComparable:
    """Return what makes values comparable; raises `Refused` where only PostgreSQL compares them."""
    if operator.trait not in value.type.own_comparisons or value.type.comparable:
        return value_reader(value.type)
    if value.field.choices:
        return partial(_position, value.field.choices)
    field = value.field
    reason = f'A rule cannot compare "{field.name}" by {operator.name}: only the database can'
    raise invalid_query(
        reason, collection=field.collection, field=field.name, operator=operator.name
    )


def _position(choices: Sequence[str], value: object) -> int:
    """Return the position of a value in the order of its enum."""
    if value not in choices:
        raise ValueError(not_one_of(choices))
    return choices.index(str(value))


def _fixed_values(operands: Sequence[Operand]) -> tuple[object, ...] | None:
    """Return the values of operands without variables; None where one of them holds a variable."""
    values: list[object] = []
    for operand in operands:
        if not isinstance(operand, Constant) or _holds_variable(operand.value):
            return None
        values.append(operand_value(operand, Bindings()))
    return tuple(values)


def _holds_variable(value: object) -> bool:
    """Tell whether the constant of a rule is a list with variables in it."""
    if not isinstance(value, tuple):
        return False
    return any(isinstance(item, Now | CallerKey) for item in value)


def operand_value(operand: PlainOperand, bindings: Bindings) -> object:
    """Return the value of an operand; a list is a tuple."""
    # The same code as for statements, so that variables mean the same in filters and rules.
    return bind_values([Placeholder(operand, _with_tuple, "validation")], bindings)[0]


def _with_tuple(operand: object) -> object:
    # A tuple is hashable and frozen, as all parts of a rule; binding gives lists.
    if isinstance(operand, list):
        return tuple(operand)
    return operand


def read_operands(
    operator: Operator, values: tuple[object, ...], read: ToComparable, subject: Subject
) -> tuple[object, ...]:
    """Return operands as values to compare with; a variable without a value stays null.

    Raises `Refused` INVALID_QUERY for an operand of a wrong type.
    """
    read_operand = operand_reader(operator, read)
    try:
        return tuple(None if value is None else read_operand(value) for value in values)
    except ValueError as error:
        path = f"{subject.label} {operator.name}"
        raise invalid_query(f"The rule {path}: {error}", place=path) from None
