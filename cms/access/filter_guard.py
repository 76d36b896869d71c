"""Filters checked name by name, with the rules of permissions beside the values that they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cms.access.name_guard import NameGuard
from cms.access.query_rewriting import distributed_over_items, quantifiers_alone
from cms.access.views import View
from cms.errors import invalid_query
from cms.query.language.ast import (
    And,
    AtField,
    CallerValue,
    Filter,
    Operand,
    OperatorTest,
    Or,
    Some,
    has_item_test,
    has_key_test,
    has_quantifier,
)
from cms.query.language.operators import NO_FIELD, SECRET_OPERATORS
from cms.query.plan.guarded import (
    AtItems,
    AtValue,
    FieldTest,
    GuardedFilter,
    GuardedOperand,
    GuardedPath,
    GuardedTest,
    GuardedValue,
)
from cms.query.plan.read_plan import LinkStep, both
from cms.schema.model import Field
from cms.schema.names import FieldName, FollowName, dotted_name, follow_name


@dataclass(frozen=True, slots=True)
class FilterGuard:
    """Walks one filter: every name in it is resolved, and checked as if its value were read."""

    names: NameGuard

    def filter(self, filter: Filter, view: View, level: int) -> GuardedFilter:
        """Return a guarded filter of the view; raises `Refused` for names that are not seen."""
        match filter:
            case And(items):
                return And(tuple(self._filters(items, view, level)))
            case Or(items):
                return Or(tuple(self._filters(items, view, level)))
            case AtField():
                return self._at_field(filter, view, level)
            case Some() | OperatorTest():
                raise invalid_query(NO_FIELD, parameter="filter")

    def _filters(
        self, filters: tuple[Filter, ...], view: View, level: int
    ) -> Iterator[GuardedFilter]:
        for filter in filters:
            yield self.filter(filter, view, level)

    def _at_field(self, filter: AtField, view: View, level: int) -> GuardedFilter:
        name = view.resolve_name(filter.name)
        inner = filter.inner
        if follow := follow_name(name.field):
            return self._at_followed(name, follow, inner, view, level)
        if dotted := dotted_name(name, view.includes):
            head = self.names.visible_field(view, dotted.head.field)
            # `author.meta.price` is the same as `meta.price` inside of `author`.
            if self.names.link(dotted.head, view) is not None:
                rest = AtField(dotted.rest, inner)
                return self._at_field(
                    AtField(replace(dotted.head, function=None), rest), view, level
                )
            value = self.names.json_value(dotted.head, dotted.steps, view)
            return AtValue(value, self._field_test(inner, head))
        field = self.names.visible_field(view, name.field)
        link = self.names.link(name, view)
        # `{"author": {"_eq": 5}}` reads the column of this row, so that the related item need not
        # be seen.
        if link is None or name.function or not has_item_test(inner):
            value = self._tested_value(name, field, view)
            return AtValue(value, self._field_test(inner, field))
        # One filter at a relation may test the key, the related item and quantifiers at once. Each
        # kind is checked and planned in its own way, so groups are taken apart first.
        if isinstance(inner, And | Or) and not link.to_many and has_key_test(inner):
            return self.filter(distributed_over_items(name, inner), view, level)
        if isinstance(inner, And | Or) and has_quantifier(inner):
            return self.filter(quantifiers_alone(name, inner), view, level)
        self.names.check_depth(level + 1, "filter")
        target = self.names.follow(name, link, view)
        # The step carries the rules of both sides: an item that the caller may not see fulfils no
        # filter, and the result does not depend on it.
        step = self.names.step(name, link, view, target)
        return self._at_items(step, inner, target, level)

    def _at_followed(
        self, name: FieldName, follow: FollowName, inner: Filter, view: View, level: int
    ) -> GuardedFilter:
        """Return a filter of the items whose field leads to those of the view."""
        if isinstance(inner, And | Or) and has_quantifier(inner):
            return self.filter(quantifiers_alone(name, inner), view, level)
        self.names.check_depth(level + 1, "filter")
        step = self.names.step_back(follow, view)
        return self._at_items(step, inner, self.names.view(follow.collection), level)

    def _at_items(self, step: LinkStep, inner: Filter, target: View, level: int) -> AtItems:
        if isinstance(inner, Some):
            guarded = self.filter(inner.inner, target, level + 1)
            return AtItems(step, guarded, negated=inner.negated)
        return AtItems(step, self.filter(inner, target, level + 1))

    def _tested_value(self, name: FieldName, field: Field, view: View) -> GuardedValue:
        """Return the value that is tested.

        A function reads the value of its field, so the guard refuses functions of secrets; a secret
        itself may be tested for null and empty. A collection behind the name (`item:headings`) can
        only be followed.
        """
        if name.function is None and name.target is None:
            return self.names.value(field, view)
        return self.names.readable_value(name, view)

    def _field_test(self, filter: Filter, field: Field) -> FieldTest:
        """Return a filter that holds operators on the field itself."""
        match filter:
            case And(items):
                return And(tuple(self._field_tests(items, field)))
            case Or(items):
                return Or(tuple(self._field_tests(items, field)))
            case OperatorTest(operator):
                # Any comparison would let a caller find a secret by bisection.
                if field.is_secret and operator not in SECRET_OPERATORS:
                    raise self.names.secret_field(field)
                return self.test(filter)
            case AtField() | Some():
                raise self.names.no_relation(field)

    def _field_tests(self, filters: tuple[Filter, ...], field: Field) -> Iterator[FieldTest]:
        for filter in filters:
            yield self._field_test(filter, field)

    def test(self, test: OperatorTest) -> GuardedTest:
        """Return an operator with its operands; paths from the caller are checked like others."""
        return GuardedTest(test.operator, tuple(map(self._operand, test.operands)))

    def _operand(self, operand: Operand) -> GuardedOperand:
        if not isinstance(operand, CallerValue):
            return operand
        self.names.check_depth(len(operand.path), "filter")
        start = self.names.view(operand.start.collection)
        steps, value = self.names.path(operand.path, start)
        # The caller's own row as well: a path shows of it only what the caller may read. both()
        # turns a rule that every row fulfils into None.
        allowed = both(start.rule.predicate, None)
        return GuardedPath(operand.start, start.collection, allowed, steps, value)
