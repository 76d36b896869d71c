"""Parses the payload of a call into sets of rows (cms/items/write/stages/parsed.py).

Parsing reads nothing from the database, so that it can be done before the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from cms.access.guard import read_only
from cms.errors import Problem, forbidden, invalid_payload
from cms.items.write.parse.payload_builder import (
    RowBuilder,
    SetBuilder,
    ToManyBuilder,
    ToOneBuilder,
    values_of_lists,
)
from cms.items.write.stages.parsed import (
    PENDING_KEY,
    ColumnRows,
    Expects,
    ListRemoval,
    Owner,
    ParsedSet,
    UnresolvedItem,
)
from cms.items.write.stages.problems import PayloadPosition, Problems, no_target_problem
from cms.mappings import without
from cms.query.plan.links import Link, link_of
from cms.schema.keys import item_of_key, key_parser, may_be_key
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.payload import (
    REPEATED,
    ItemParser,
    MutableRowValues,
    ParsedItem,
    RowValues,
    converter,
    invalid_item,
    value_problem,
)
from cms.schema.reasons import NO_ARRAY, NO_OBJECT
from cms.schema.types.field_type import Trait

ItemParsers = Callable[[Collection, Expects], ItemParser]
"""Returns what parses items of a collection for this caller."""

_NO_FIELDS: frozenset[object] = frozenset()
_LIST_CHANGES = {
    "create": Expects.ABSENT,
    "update": Expects.PRESENT,
    "delete": Expects.PRESENT,
}
"""The keys of an object that changes a list instead of replacing it."""


@dataclass(slots=True)
class PayloadParser:
    """Parses one payload, and collects what is wrong with it in `problems`.

    Hidden names and payloads that are nested too deeply raise `Refused` at once.
    """

    catalogue: Catalogue
    max_depth: int
    find_item_parser: ItemParsers
    problems: Problems = field(default_factory=Problems)
    _item_parsers: dict[tuple[str, Expects], ItemParser] = field(default_factory=dict)

    def parse(self, collection: Collection, items: Sequence[object], expects: Expects) -> ParsedSet:
        """Return the rows of the items of one call, with all that they say of related items."""
        builder = SetBuilder(collection)
        if len(items) == 1:
            self._parse_root_item(builder, items[0], PayloadPosition(), expects)
            return builder.build()
        values = None
        # Items that name the same fields are parsed column by column, which is much faster.
        if items:
            values = self._item_parser(collection, expects).read_columns(items)
        if values is not None:
            mappings = cast(Sequence[Mapping[str, object]], items)
            return ParsedSet(collection, 0, ColumnRows(mappings, values, expects))
        for index, item in enumerate(items):
            self._parse_root_item(builder, item, PayloadPosition(index), expects)
        return builder.build()

    def attach_resolved(self, parsed: ParsedSet, targets: Sequence[str | None]) -> ParsedSet:
        """Return a set with the objects at many-to-any fields attached that were unresolved.

        `targets` are the collections of these objects, as stored; None where nothing is stored.
        """
        builder = SetBuilder.of(parsed)
        builder.unresolved.clear()
        for item, target in zip(parsed.unresolved, targets, strict=True):
            self._attach_to_collection(builder, item, target)
        return builder.build()

    def parse_again(
        self, parsed: ParsedSet, items: Mapping[int, Mapping[str, object]]
    ) -> ParsedSet:
        """Return a set with other items in the place of some rows, by their numbers.

        All rows keep their numbers, and with them what refers to them from the set above.
        """
        builder = SetBuilder(parsed.collection, parsed.level)
        builder.numbers_by_key.update(parsed.numbers_by_key)
        for number, row in enumerate(parsed.rows):
            # Rows without another item are parsed once more as well, for the sets below them.
            item = items.get(number, row.sent)
            read = self._item_parser(builder.collection, row.expects).read(item)
            for problem in read.problems:
                self.problems.add(problem, row.position)
            values = {**read.values, **values_of_lists(row, read.values)}
            fields = _fields_of(read.problems)
            builder.add(
                RowBuilder(item, values, row.position, row.expects, fields, owner=row.owner)
            )
            if read.nested:
                self._attach(builder, number, read)
        return builder.build()

    def _item_parser(self, collection: Collection, expects: Expects) -> ItemParser:
        """Return the parser of items, which is looked up once: a list may have ten thousand."""
        key = collection.name, expects
        if key not in self._item_parsers:
            self._item_parsers[key] = self.find_item_parser(collection, expects)
        return self._item_parsers[key]

    # Items

    def _parse_root_item(
        self, builder: SetBuilder, item: object, position: PayloadPosition, expects: Expects
    ) -> None:
        if isinstance(item, Mapping):
            self._parse_item(builder, item, position, expects)
            return
        # An item of another shape is a problem, and no row.
        for problem in self._item_parser(builder.collection, expects).read(item).problems:
            self.problems.add(problem, position)

    def _parse_item(
        self,
        builder: SetBuilder,
        item: Mapping[str, object],
        position: PayloadPosition,
        expects: Expects,
    ) -> int:
        """Parse an item with all that is nested in it, and return the number of its row."""
        parsed = self._item_parser(builder.collection, expects).read(item)
        for problem in parsed.problems:
            self.problems.add(problem, position)
        invalid_fields = _fields_of(parsed.problems) if parsed.problems else _NO_FIELDS
        row = RowBuilder(item, parsed.values, position, expects, invalid_fields)
        # Items of the root are not merged, as each is answered. The same key twice is refused: for
        # changes by item_writes.py, for new rows by the database.
        if builder.level:
            number = self._add_or_merge(builder, row, parsed)
        else:
            number = builder.add(row)
        if parsed.nested:
            self._attach(builder, number, parsed)
        return number

    def _add_or_merge(self, builder: SetBuilder, row: RowBuilder, parsed: ParsedItem) -> int:
        """Make objects with the same key one row, in which the values of later ones win."""
        key = builder.collection.key_of(row.values)
        number = None if key is None else builder.numbers_by_key.get(key)
        if number is None:
            number = builder.add(row)
            if key is not None:
                builder.numbers_by_key[key] = number
            return number
        # The same key means the same row, which is written once.
        builder.rows[number].merge(row)
        # An object takes the place of a value that stood there.
        for name in parsed.nested:
            for part in builder.collection.fields[name].key_fields:
                if part.name not in row.values:
                    builder.rows[number].values.pop(part.name, None)
        # A value for the field itself takes the place of an object that stood there.
        for to_one in builder.to_one.values():
            if all(name in row.values for name in to_one.columns):
                to_one.detach(number)
        # Of objects with one key only the first may hold lists: two arrays would each be the
        # complete content of a list.
        if any(map(_is_list, parsed.nested.values())):
            problem = invalid_item(REPEATED, builder.collection.name)
            self.problems.add(problem, row.position)
        return number

    def _attach(self, builder: SetBuilder, number: int, parsed: ParsedItem) -> None:
        """Attach the related items that an item names to the sets below its own set."""
        for name, value in parsed.nested.items():
            link = link_of(self.catalogue, builder.collection, name)
            # Without a target collection a many-to-any field has no link.
            if link is None:
                self._attach_to_any(builder, number, name, value)
            elif link.to_many:
                self._attach_to_many(builder, number, value, link, name=name)
            else:
                self._attach_to_one(builder, number, value, link, name=name)

    def _target_set(self, builder: SetBuilder, link: Link, position: PayloadPosition) -> SetBuilder:
        """Return a set for the collection beyond a link."""
        target = self.catalogue.collections[link.target]
        # Each level costs statements: the depth of writes is limited like that of reads.
        if builder.level == self.max_depth:
            raise invalid_payload(
                f"It goes deeper than {self.max_depth} relations", path=list(position.path)
            )
        if link.to_many and not target.is_writable:
            self.problems.add(read_only(target), position)
        return SetBuilder(target, builder.level + 1)

    # To-one fields

    def _attach_to_any(self, builder: SetBuilder, number: int, name: str, value: object) -> None:
        row = builder.rows[number]
        relation = self.catalogue.by_many[builder.collection.name, name]
        collection_field = str(relation.one_collection_field)
        assert isinstance(value, Mapping)
        # The name of the collection was refused already; a second problem would only repeat it.
        if collection_field in row.invalid_fields:
            if not self._item_parser(builder.collection, row.expects).reveals_missing:
                raise forbidden()  # as for a collection that is hidden
            return
        unresolved = UnresolvedItem(number, name, collection_field, value)
        row.values[name] = PENDING_KEY
        # For a row that may be stored, the stored row may name the collection.
        if row.expects is Expects.ABSENT or collection_field in row.values:
            self._attach_to_collection(builder, unresolved, row.values.get(collection_field))
        else:
            builder.unresolved.append(unresolved)

    def _attach_to_collection(
        self, builder: SetBuilder, unresolved: UnresolvedItem, target: str | None
    ) -> None:
        """Attach an object at a many-to-any field, now that its collection is known."""
        link = None
        name = unresolved.field
        if target:
            link = link_of(self.catalogue, builder.collection, name, target)
        if link:
            self._attach_to_one(builder, unresolved.row, unresolved.item, link, name=name)
        elif target and not self._item_parser(builder.collection, Expects.ANY).reveals_missing:
            raise forbidden()  # as for a collection that is hidden
        else:
            problem = no_target_problem(builder.collection, name, unresolved.collection_field)
            self.problems.add(problem, builder.rows[unresolved.row].position)

    def _attach_to_one(
        self, builder: SetBuilder, number: int, value: object, link: Link, *, name: str
    ) -> None:
        assert isinstance(value, Mapping)
        row = builder.rows[number]
        position = row.position.below(name)
        to_one = builder.to_one.get((name, link.target))
        if to_one is None:
            to_one = ToOneBuilder(name, link, self._target_set(builder, link, position))
            builder.to_one[name, link.target] = to_one
        for name in to_one.columns:
            # It stays where it is part of the key that names the row.
            row.values.setdefault(name, PENDING_KEY)
        # Objects of all rows above share one set, and so one statement.
        targets = to_one.targets
        # An item of a collection that can only be read here may be named by its key.
        is_writable = targets.collection.is_writable
        expects = Expects.ANY if is_writable else Expects.PRESENT
        target_number = self._parse_item(targets, value, position, expects)
        target_row = targets.rows[target_number]
        if not is_writable and target_row.sent.keys() != {*targets.collection.key_names}:
            self.problems.add(read_only(targets.collection), position)
        # Rows that share an object share the one row; the first of them counts as its owner.
        target_row.owner = target_row.owner or Owner(number)
        to_one.pairs.append((number, target_number))

    # To-many fields

    def _attach_to_many(
        self, builder: SetBuilder, number: int, value: object, link: Link, *, name: str
    ) -> None:
        owner = builder.rows[number]
        to_many = builder.to_many.get(name)
        if to_many is None:
            elements = self._target_set(builder, link, owner.position.below(name))
            to_many = builder.to_many[name] = ToManyBuilder(name, link, elements)
        # The list is refused as a whole, and its rows may have no key by which to look for them.
        if not to_many.elements.collection.is_writable:
            return
        # Either the whole list, as in [1, {"id": 2, "title": "x"}, {"title": "new"}],
        # or its changes, as in {"create": [{"title": "new"}], "update": [{"id": 2}], "delete": [3]}
        if isinstance(value, list):
            to_many.replaced_lists.append(number)
            position = owner.position.below(name)
            order_field = _order_field_of(to_many)
            for index, element in enumerate(value):
                element_number = self._add_element(
                    to_many, number, element, position.below(index), Expects.ANY
                )
                if order_field and element_number is not None:
                    values = to_many.elements.rows[element_number].values
                    _set_order(values, order_field, index + 1)
        elif isinstance(value, Mapping) and value.keys() <= _LIST_CHANGES.keys():
            self._parse_list_changes(to_many, number, value, owner.position.below(name))
        else:
            reason = "it must be an array, or an object that holds create, update or delete"
            problem = invalid_item(reason, builder.collection.name, name)
            self.problems.add(problem, owner.position)

    def _parse_list_changes(
        self,
        to_many: ToManyBuilder,
        owner: int,
        value: Mapping[str, object],
        position: PayloadPosition,
    ) -> None:
        for action, elements in value.items():
            below = position.below(action)
            if not isinstance(elements, list):
                self._add_problem(to_many, below, NO_ARRAY)
            elif action == "delete":
                self._parse_removals(to_many, owner, elements, below)
            else:
                expects = _LIST_CHANGES[action]
                for index, element in enumerate(elements):
                    self._add_element(to_many, owner, element, below.below(index), expects)

    def _add_element(
        self,
        to_many: ToManyBuilder,
        owner: int,
        element: object,
        position: PayloadPosition,
        expects: Expects,
    ) -> int | None:
        """Add an element to the list of a row, and return its number unless there is a problem."""
        number = self._parse_element(to_many, element, position, expects)
        if number is None:
            return None
        row = to_many.elements.rows[number]
        # A row has one owner, and so stands in one list.
        if row.owner:
            self._add_problem(to_many, position, REPEATED)
            return None
        far = to_many.link.far
        row.owner = Owner(owner, far)
        row.values.update(dict.fromkeys((part.name for part in far.set_fields), PENDING_KEY))
        to_many.pairs.append((owner, number))
        return number

    def _parse_element(
        self, to_many: ToManyBuilder, element: object, position: PayloadPosition, expects: Expects
    ) -> int | None:
        """Parse an object, or the key of a row that is present."""
        if isinstance(element, Mapping):
            element = without(element, _set_by_list(to_many, element, expects))
            return self._parse_item(to_many.elements, element, position, expects)
        if expects is Expects.ABSENT:
            self._add_problem(to_many, position, NO_OBJECT)
            return None
        collection = to_many.elements.collection
        if not may_be_key(collection, element):
            self._add_problem(to_many, position, "it must be an object or a key")
            return None
        try:
            item = item_of_key(collection, element)
        except ValueError as error:
            self._add_key_problem(to_many, element, error, position)
            return None
        return self._parse_item(to_many.elements, item, position, Expects.PRESENT)

    def _parse_removals(
        self, to_many: ToManyBuilder, owner: int, keys: list[object], position: PayloadPosition
    ) -> None:
        for index, sent in enumerate(keys):
            element_position = position.below(index)
            try:
                values = _removed_key(to_many, sent)
                to_many.removals.append(ListRemoval(owner, sent, values, element_position))
            except ValueError as error:
                self._add_key_problem(to_many, sent, error, element_position)

    def _add_key_problem(
        self, to_many: ToManyBuilder, sent: object, error: ValueError, position: PayloadPosition
    ) -> None:
        collection = to_many.elements.collection
        problem = value_problem(collection, collection.key.name, sent, error)
        extensions = {**problem.extensions, "path": []}  # the element itself is the key
        self.problems.add(replace(problem, extensions=extensions), position)

    def _add_problem(self, to_many: ToManyBuilder, position: PayloadPosition, reason: str) -> None:
        self.problems.add(invalid_item(reason, to_many.elements.collection.name), position)


def _set_by_list(
    to_many: ToManyBuilder, element: Mapping[str, object], expects: Expects
) -> list[str]:
    """Return the fields of an element whose values the list sets, whatever was sent for them.

    The columns to the owner name the row where they are part of its key, and the row may be stored.
    """
    far = to_many.link.far
    collection = to_many.elements.collection
    names = [far.name] if far.parts else []
    for part in far.key_fields:
        is_named = part.name in collection.key_names and expects is not Expects.ABSENT
        # Clients send any value for an owner that they leave to the list.
        if not (is_named and _is_value(part, element.get(part.name))):
            names.append(part.name)
    return names


def _is_value(field: Field, value: object) -> bool:
    if value is None:
        return False
    try:
        converter(field)(value)
    except ValueError:
        return False
    return True


def _removed_key(to_many: ToManyBuilder, sent: object) -> RowValues:
    """Return the values of the key of an element that leaves a list; ValueError for no key."""
    collection = to_many.elements.collection
    if not isinstance(sent, Mapping):
        return collection.key_values(collection.key.type.parse(sent))
    if collection.key_name:
        raise ValueError("it must be a key")
    owner_columns = {part.name for part in to_many.link.far.key_fields}
    values: MutableRowValues = {}
    for part in collection.key.key_fields:
        if sent.get(part.name) is not None:
            values[part.name] = key_parser(part)(sent[part.name])
        elif part.name not in owner_columns:
            raise ValueError(f'it must hold "{part.name}"')
    return values


def _set_order(values: MutableRowValues, order_field: str, order: int) -> None:
    """Write the position of an element in its array, from 1, unless the element has one."""
    if values.get(order_field) is None:
        values[order_field] = str(order)


def _order_field_of(to_many: ToManyBuilder) -> str | None:
    """Return the field that keeps the order of a list, if positions can be written to it."""
    collection = to_many.elements.collection
    field = collection.fields.get(to_many.link.relation.order_field or "")
    if field is None or field.column is None or Trait.ARITHMETIC not in field.type.traits:
        return None
    is_filled_by_database = field.column.is_generated or field.column.has_auto_increment
    if is_filled_by_database or field.name in collection.key_names:
        return None
    return field.name


def _is_list(value: object) -> bool:
    """Tell whether a nested value has the shape of a to-many field's value."""
    return not isinstance(value, Mapping) or value.keys() <= _LIST_CHANGES.keys()


def _fields_of(problems: list[Problem]) -> frozenset[object]:
    # A problem of the whole item adds None, which is the name of no field.
    return frozenset(problem.extensions.get("field") for problem in problems)
