"""The kinds of tests in a filter at a relation: of the key, of the related item, quantifiers."""

from __future__ import annotations

from cms.query.language.ast import And, AtField, Filter, OperatorTest, Or, Some


def has_key_test(filter: Filter) -> bool:
    """Tell whether a filter at a relation tests the key itself."""
    match filter:
        case And(items) | Or(items):
            # {"author": {"_in": [1, 2]}} is about the key, {"author": {"name": …}} about the item
            # behind it. One filter may hold both.
            return any(map(has_key_test, items))
        case AtField() | Some():
            return False
        case OperatorTest():
            return True


def has_quantifier(filter: Filter) -> bool:
    """Tell whether a filter at a relation has `_some` or `_none`, alone or in groups."""
    match filter:
        case And(items) | Or(items):
            return any(map(has_quantifier, items))
        case Some():
            return True
        case AtField() | OperatorTest():
            return False


def has_item_test(filter: Filter) -> bool:
    """Tell whether a filter at a relation tests the related item, and not only the key."""
    match filter:
        case And(items) | Or(items):
            return any(map(has_item_test, items))
        case AtField() | Some():
            return True
        case OperatorTest():
            return False
