"""Parses the payload of a call into its tree of changes (cms/items/write/changes.py).

Parsing reads nothing from the database, so that it can be done before the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cms.errors import Problem, forbidden, invalid_payload
from cms.items.write.changes import (
    ChangeSet,
    Expects,
    ListRemoval,
    PayloadPosition,
    Problems,
    RowChange,
    ToMany,
    ToOne,
    UnresolvedItem,
)
from cms.query.plan.links import Link, link_of
from cms.schema.auto_fields import PENDING_KEY
from cms.schema.model import Catalogue, Collection
from cms.schema.payload import ItemParser, ParsedItem, invalid_item, value_problem
from cms.schema.types import MASK
from cms.schema.types.field_type import Trait

ItemParsers = Callable[[Collection, Expects], ItemParser]
"""Returns what parses items of a collection for this caller."""

_LIST_CHANGES = {
    "create": Expects.ABSENT,
    "update": Expects.PRESENT,
    "delete": Expects.PRESENT,
}
"""The keys of an object that changes a list instead of replacing it."""


class PayloadParser:
    """Parses one payload and gathers its problems.

    Raises `Refused` at once only for hidden names, and for payloads that are nested too deeply.
    """

    def __init__(self, catalogue: Catalogue, *, max_depth: int, item_parsers: ItemParsers) -> None:
        self._catalogue = catalogue
        self._max_depth = max_depth
        self._item_parser = item_parsers
        self.problems = Problems()

    def parse(self, collection: Collection, items: Sequence[object], expects: Expects) -> ChangeSet:
        """Return the tree of the items of one call."""
        change_set = ChangeSet(collection)
        if len(items) == 1:
            self._parse_item(change_set, items[0], PayloadPosition(), expects)
            return change_set
        # Items that name the same fields are parsed column by column, which is much faster.
        rows = self._item_parser(collection, expects).read_columns(items) if items else None
        if rows is not None:
            is_new = expects is not Expects.PRESENT
            change_set.changes = [
                RowChange(item, values, position, expects, is_new=is_new)  # type: ignore[arg-type]
                for item, values, position in zip(
                    items, rows, map(PayloadPosition, range(len(items))), strict=True
                )
            ]
            return change_set
        for index, item in enumerate(items):
            self._parse_item(change_set, item, PayloadPosition(index), expects)
        return change_set

    def attach_resolved(
        self, change_set: ChangeSet, unresolved: UnresolvedItem, target: str | None
    ) -> None:
        """Attach an object at a many-to-any field, now that its collection is known."""
        link = None
        if target:
            link = link_of(self._catalogue, change_set.collection, unresolved.field, target)
        if link:
            self._attach_to_one(
                change_set, unresolved.change, unresolved.field, unresolved.item, link
            )
        elif target and not self._item_parser(change_set.collection, Expects.EITHER).tells_missing:
            raise forbidden()  # as for a collection that is hidden
        else:
            reason = f'"{unresolved.collection_field}" must say to which collection it belongs'
            self.problems.add(
                invalid_item(reason, change_set.collection.name, unresolved.field),
                unresolved.change.position,
            )

    def _parse_item(
        self, change_set: ChangeSet, item: object, position: PayloadPosition, expects: Expects
    ) -> RowChange:
        parsed = self._item_parser(change_set.collection, expects).read(item)
        for problem in parsed.problems:
            self.problems.add(problem, position)
        if not isinstance(item, Mapping):
            return RowChange({}, {}, position)
        invalid_fields = _fields_of(parsed.problems)
        change = RowChange(item, parsed.values, position, expects, invalid_fields)
        change.is_new = expects is not Expects.PRESENT
        if change_set.level:
            change = self._merge_same_key(change_set, change, parsed)
        else:
            change_set.changes.append(change)
        if parsed.nested:
            self._attach(change_set, change, parsed)
        return change

    def _merge_same_key(
        self, change_set: ChangeSet, change: RowChange, parsed: ParsedItem
    ) -> RowChange:
        """Make objects with the same key one row, in which the values of later ones win."""
        key = change.values.get(change_set.key_field)
        first = change_set.by_key.setdefault(key, change) if key else change
        if first is change:
            change_set.changes.append(change)
            return change
        # The same key means the same row, which is written once.
        first.values.update(change.values)
        first.sent = {**first.sent, **_sent_without_masks(change)}
        first.invalid_fields |= change.invalid_fields
        # A value for the field itself takes the place of an object that stood there.
        for to_one in change_set.to_one_fields.values():
            if to_one.name in change.values:
                to_one.pairs = [pair for pair in to_one.pairs if pair[0] is not first]
        if any(map(_is_list, parsed.nested.values())):
            self.problems.add(
                invalid_item("it is there twice", change_set.collection.name), change.position
            )
        return first

    def _attach(self, change_set: ChangeSet, change: RowChange, parsed: ParsedItem) -> None:
        """Attach what an item says of related items."""
        for name, value in parsed.nested.items():
            link = link_of(self._catalogue, change_set.collection, name)
            if link is None:
                self._attach_to_any(change_set, change, name, value)
            elif link.to_many:
                self._attach_to_many(change_set, change, name, value, link)
            else:
                self._attach_to_one(change_set, change, name, value, link)

    def _target_set(
        self, change_set: ChangeSet, link: Link, position: PayloadPosition
    ) -> ChangeSet:
        """Return a change set for the collection beyond a link."""
        target = self._catalogue.collections[link.target]
        # Each level costs statements: the depth of writes is limited like that of reads.
        if change_set.level == self._max_depth:
            raise invalid_payload(
                f"It goes deeper than {self._max_depth} relations", path=list(position.path)
            )
        if link.to_many and not target.is_writable:
            self._forbid(target, position)
        return ChangeSet(target, change_set.level + 1)

    def _forbid(self, target: Collection, position: PayloadPosition) -> None:
        message = f'The items of "{target.name}" can only be read here.'
        self.problems.add(Problem("FORBIDDEN", message), position)

    # To-one fields

    def _attach_to_any(
        self, change_set: ChangeSet, change: RowChange, name: str, value: object
    ) -> None:
        relation = self._catalogue.by_many[change_set.collection.name, name]
        collection_field = str(relation.one_collection_field)
        assert isinstance(value, Mapping)
        if collection_field in change.invalid_fields:
            if not self._item_parser(change_set.collection, change.expects).tells_missing:
                raise forbidden()  # as for a collection that is hidden
            return
        unresolved = UnresolvedItem(change, name, collection_field, value)
        change.values[name] = PENDING_KEY
        if change.expects is Expects.ABSENT or collection_field in change.values:
            self.attach_resolved(change_set, unresolved, change.values.get(collection_field))
        else:
            change_set.unresolved.append(unresolved)

    def _attach_to_one(
        self, change_set: ChangeSet, change: RowChange, name: str, value: object, link: Link
    ) -> None:
        position = change.position.below(name)
        to_one = change_set.to_one_fields.get((name, link.target))
        if to_one is None:
            to_one = ToOne(name, link, self._target_set(change_set, link, position))
            change_set.to_one_fields[name, link.target] = to_one
        change.values[name] = PENDING_KEY
        # An item of a collection that can only be read here may be named by its key.
        is_writable = to_one.change_set.collection.is_writable
        expects = Expects.EITHER if is_writable else Expects.PRESENT
        target_row = self._parse_item(to_one.change_set, value, position, expects)
        if not is_writable and target_row.sent.keys() != {to_one.change_set.key_field}:
            self._forbid(to_one.change_set.collection, position)
        target_row.parent_row = target_row.parent_row or change
        to_one.pairs.append((change, target_row))

    # To-many fields

    def _attach_to_many(
        self, change_set: ChangeSet, change: RowChange, name: str, value: object, link: Link
    ) -> None:
        to_many = change_set.to_many_fields.get(name)
        if to_many is None:
            target_set = self._target_set(change_set, link, change.position.below(name))
            to_many = change_set.to_many_fields[name] = ToMany(name, link, target_set)
        if isinstance(value, list):
            to_many.replaced_lists.append(change)
            self._parse_elements(to_many, change, value, (), Expects.EITHER)
        elif isinstance(value, Mapping) and value.keys() <= _LIST_CHANGES.keys():
            self._parse_list_changes(to_many, change, value)
        else:
            reason = "it must be an array, or an object that holds create, update or delete"
            self.problems.add(
                invalid_item(reason, change_set.collection.name, name), change.position
            )

    def _parse_list_changes(
        self, to_many: ToMany, owner: RowChange, value: Mapping[str, object]
    ) -> None:
        for action, elements in value.items():
            if not isinstance(elements, list):
                position = owner.position.below(to_many.name, action)
                self._add_problem(to_many, position, "it must be an array")
            elif action == "delete":
                self._parse_removals(to_many, owner, elements)
            else:
                self._parse_elements(to_many, owner, elements, (action,), _LIST_CHANGES[action])

    def _parse_elements(
        self,
        to_many: ToMany,
        owner: RowChange,
        elements: list[object],
        steps: tuple[str, ...],
        expects: Expects,
    ) -> None:
        """Parse elements of a list; `steps` lead from the field to them."""
        for number, element in enumerate(elements):
            position = owner.position.below(to_many.name, *steps, number)
            change = self._parse_element(to_many, element, position, expects)
            if change is None:
                continue
            # A row has one owner, and so stands in one list.
            if change.parent_row:
                self._add_problem(to_many, position, "it is there twice")
                continue
            change.parent_row = owner
            _set_parent(to_many, change, None if steps else number + 1)
            to_many.pairs.append((owner, change))

    def _parse_element(
        self, to_many: ToMany, element: object, position: PayloadPosition, expects: Expects
    ) -> RowChange | None:
        """Parse an object, or the key of a row that is present."""
        if isinstance(element, Mapping):
            if isinstance(element.get(to_many.link.far), Mapping):
                reason = f'"{to_many.link.far}" is what this list sets'
                self._add_problem(to_many, position, reason)
            return self._parse_item(to_many.change_set, element, position, expects)
        if expects is Expects.ABSENT:
            self._add_problem(to_many, position, "it must be an object")
            return None
        if element is None or isinstance(element, list):
            self._add_problem(to_many, position, "it must be an object or a key")
            return None
        item = {to_many.change_set.key_field: element}
        return self._parse_item(to_many.change_set, item, position, Expects.PRESENT)

    def _parse_removals(self, to_many: ToMany, owner: RowChange, keys: list[object]) -> None:
        collection = to_many.change_set.collection
        for number, sent in enumerate(keys):
            position = owner.position.below(to_many.name, "delete", number)
            try:
                key = collection.key.type.parse(sent)
                to_many.removals.append(ListRemoval(owner, sent, key, position))
            except ValueError as error:
                problem = value_problem(collection, collection.key.name, sent, error)
                extensions = {**problem.extensions, "path": []}  # the element itself is the key
                self.problems.add(replace(problem, extensions=extensions), position)

    def _add_problem(self, to_many: ToMany, position: PayloadPosition, reason: str) -> None:
        self.problems.add(invalid_item(reason, to_many.change_set.collection.name), position)


def _set_parent(to_many: ToMany, change: RowChange, number: int | None) -> None:
    """Make a row an element of its owner's list, at this place where a field keeps the order."""
    change.values[to_many.link.far] = PENDING_KEY
    change.parent_field = to_many.link.far
    order_field = _order_field_of(to_many)
    if order_field and number and change.values.get(order_field) is None:
        change.values[order_field] = str(number)


def _order_field_of(to_many: ToMany) -> str | None:
    """Return the field that keeps the order of a list, if places can be written to it."""
    collection = to_many.change_set.collection
    field = collection.fields.get(to_many.link.relation.order_field or "")
    if field is None or field.column is None or Trait.ARITHMETIC not in field.type.traits:
        return None
    is_filled_by_database = field.column.is_generated or field.column.has_auto_increment
    if is_filled_by_database or field.name == collection.primary_key:
        return None
    return field.name


def _sent_without_masks(change: RowChange) -> dict[str, object]:
    """Return what was sent, without secrets that were sent back as they had been shown."""
    return {
        name: value for name, value in change.sent.items() if value != MASK or name in change.values
    }


def _is_list(value: object) -> bool:
    """Tell whether a nested value is of a to-many field."""
    return not isinstance(value, Mapping) or value.keys() <= _LIST_CHANGES.keys()


def _fields_of(problems: list[Problem]) -> frozenset[object]:
    if not problems:
        return frozenset()
    return frozenset(problem.extensions.get("field") for problem in problems)
