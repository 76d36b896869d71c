"""Filters checked name by name, with the rules of permissions put beside what they read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cms.access.name_guard import NameGuard
from cms.access.query_rewriting import distributed_over_items, quantifiers_alone
from cms.access.views import View
from cms.errors import invalid_query
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
from cms.query.language.operators import SECRET_OPERATORS
from cms.query.plan.links import has_item_test, has_key_test, has_quantifier, link_of
from cms.schema.model import Field


@dataclass(frozen=True, slots=True)
class FilterGuard:
    """Walks one filter: every name in it is checked as if its value were read."""

    names: NameGuard

    def filter(self, filter: Filter, view: View, level: int) -> Filter:
        """Return a guarded filter of the view; raises `Refused` for names that are not seen."""
        match filter:
            case And(items) | Or(items):
                guarded = tuple(self.filter(item, view, level) for item in items)
                return replace(filter, items=guarded)
            case AtField():
                return self._at_field(filter, view, level)
            case Some() | OperatorTest():
                raise invalid_query("An operator needs a field to stand at", parameter="filter")
            case AboutItem():
                raise AssertionError("no request says this")

    def _at_field(self, filter: AtField, view: View, level: int) -> Filter:
        name = filter.name
        inner = filter.inner
        field = self.names.visible_field(view, view.own_name(name))
        link = link_of(self.names.catalogue, view.collection, name.field)
        if link is None or name.function or not has_item_test(inner):
            return AtField(self._tested_name(name, view), self._on_field(inner, field))
        # One filter at a relation may test the key, the related item and quantifiers at once. Each
        # kind is checked and planned in its own way, so groups are taken apart first.
        if isinstance(inner, And | Or) and not link.to_many and has_key_test(inner):
            return self.filter(distributed_over_items(name, inner), view, level)
        if isinstance(inner, And | Or) and has_quantifier(inner):
            return self.filter(quantifiers_alone(name, inner), view, level)
        self.names.check_depth(level + 1)
        name, target = self.names.follow(name, link, view)
        return AtField(name, self._related(inner, target, level + 1))

    def _tested_name(self, name: FieldName, view: View) -> FieldName:
        """Return the name of a tested value.

        A function reads what its field shows, so secrets are refused; a plain secret may be tested
        for null and empty. A collection behind the name (`item:headings`) can only be followed.
        """
        if name == FieldName(name.base_field):
            return self.names.with_mask(name, view)
        return self.names.readable_name(name, view)

    def _related(self, inner: Filter, target: View, level: int) -> Filter:
        """Return the filter on related items, which `_some` and `_none` may stand around."""
        if isinstance(inner, Some):
            return replace(inner, inner=self.filter(inner.inner, target, level))
        return self.filter(inner, target, level)

    def _on_field(self, filter: Filter, field: Field) -> Filter:
        """Check a filter that holds operators on the field itself."""
        match filter:
            case And(items) | Or(items):
                return replace(filter, items=tuple(self._on_field(item, field) for item in items))
            case OperatorTest(operator, operands):
                if field.is_secret and operator not in SECRET_OPERATORS:
                    raise self.names.secret_field(field)
                guarded = tuple(self._operand(operand) for operand in operands)
                return replace(filter, operands=guarded)
            case AtField() | Some() | AboutItem():
                raise self.names.no_relation(field)

    def _operand(self, operand: Operand) -> Operand:
        """A path from the caller is checked like any other path."""
        if not isinstance(operand, CallerValue) or not operand.path:
            return operand
        self.names.check_depth(len(operand.path))
        start = self.names.view(operand.collection)
        path = self.names.path(operand.path, start)
        return replace(operand, path=path, allowed=start.rule)
