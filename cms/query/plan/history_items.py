"""The condition that a row of the history is about an item which the caller may see."""

from __future__ import annotations

from cms.query.language.ast import Constant
from cms.query.plan.guarded import GuardedTest
from cms.query.plan.links import history_item_link
from cms.query.plan.read_plan import EVERY_ROW, All, Exists, LinkStep, Predicate, Value
from cms.query.plan.revision_items import on_revision_item
from cms.query.plan.typed_tests import typed_test
from cms.schema.model import Catalogue, Collection


def about_item(
    history: Collection, item_collection: Collection, rule: Predicate, catalogue: Catalogue
) -> Predicate:
    """Return the condition that a row of `history` is about an item that fulfils the rule.

    A revision also holds the item as it was; the rule is tried on that, too. The items must have a
    primary key.
    """
    conditions: list[Predicate] = [_is("collection", "_eq", item_collection.name, history)]
    # Rows up to this one are about items that had this name and key before. If a collection is
    # deleted and another one created with its name, the rules of the new one must not show the
    # history of the former.
    if last := item_collection.former_history.get(history.name):
        conditions = [All((*conditions, _is("id", "_gt", last, history)))]
    if rule == EVERY_ROW:
        return conditions[0]
    link = history_item_link(catalogue, history, item_collection.name)
    assert link, "the items have a key"
    # A page of the history names few items, of collections that may have many.
    conditions.append(Exists(LinkStep(link), rule, per_row=True))
    # Otherwise a revision would show an item as it was before it fulfilled the rule.
    if "data" in history.fields:
        conditions.append(on_revision_item(rule, item_collection))
    return All(tuple(conditions))


def _is(field: str, operator: str, value: object, history: Collection) -> Predicate:
    test = GuardedTest(operator, (Constant(value),))
    return typed_test(test, Value(history.fields[field]))
