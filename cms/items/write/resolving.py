"""Resolves the related items of a payload before anything is written.

The resolver finds out which rows are stored, to whose lists they belong, and which rows leave a
list. It reads as the caller may read: a row that the caller cannot see is refused like a missing
one if the payload names it, and stays in its list if not.

Of a to-many field, the elements' column `far` points to the owner's column `near` (`Link`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cms.access.guard import view_of
from cms.errors import Problem, abbreviated
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.item_filters import filtered_set
from cms.items.write.parse.payload_parser import PayloadParser
from cms.items.write.stages.parsed import (
    Expects,
    Owner,
    ParsedRow,
    ParsedSet,
    ParsedToMany,
    ParsedToOne,
    PendingKey,
)
from cms.items.write.stages.problems import PayloadPosition, Problems
from cms.items.write.stages.resolved_rows import (
    ResolvedSet,
    ResolvedToMany,
    ResolvedToOne,
    StoredRows,
    deletes_dropped,
)
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import (
    as_stored,
    column_by_key,
    has_one_text,
    list_values,
    lock_list,
    lock_view,
)
from cms.query.language.ast import And, AtField, OperatorTest, Pick, Query, Slot
from cms.query.sql.arguments import key_cast
from cms.schema.keys import sent_key
from cms.schema.model import Collection
from cms.schema.names import FieldName
from cms.schema.payload import MISSING_KEY, REPEATED, RowValues, invalid_item, stored_values

_NO_VALUES: Mapping[int, str] = {}

StoredTexts = Mapping[str, dict[str, str | None]]
"""What rows hold in some of their fields, as text, by their keys."""


@dataclass(frozen=True, slots=True)
class _ListState:
    """The stored content of the lists at one field, locked.

    `near_values` are the values that elements of stored owners hold in the field that points to
    them, by the owners' numbers. `keys` are those of named elements by their numbers, and `removed`
    those of removals in their order, as PostgreSQL writes them. `stored` are the stored rows of
    these keys, in whichever list they are.
    """

    near_values: Mapping[int, str]
    keys: Mapping[int, str]
    removed: Sequence[str | None]
    stored: StoredTexts


class Resolver:
    """Resolves one tree, from the root down."""

    def __init__(
        self, executor: Executor, parser: PayloadParser, authorizer: WriteAuthorizer
    ) -> None:
        self._executor = executor
        self._parser = parser
        self._authorizer = authorizer
        self._problems = parser.problems

    def resolve(self, parsed: ParsedSet, resolved: ResolvedSet) -> ResolvedSet:
        """Return `resolved`, whose own rows are complete, with the sets below it resolved too."""
        # First, as it turns objects at many-to-any fields into objects at to-one fields.
        parsed = self._with_targets(parsed, resolved)
        to_one: list[ResolvedToOne] = []
        for objects in parsed.to_one:
            to_one.append(self._resolve_to_one(objects, resolved))
        to_many: list[ResolvedToMany] = []
        for elements in parsed.to_many:
            to_many.append(self._resolve_list(elements, resolved))
        return resolved._replace(to_one=tuple(to_one), to_many=tuple(to_many))

    def _complete(
        self,
        parsed: ParsedSet,
        stored: StoredRows,
        parent: ResolvedSet,
        near_values: Mapping[int, str] = _NO_VALUES,
    ) -> ResolvedSet:
        """Return a set below another, with its own rows and all that is below them.

        `near_values` are those of `_ListState`, for elements of lists.
        """
        parsed = filtered_set(
            self._executor, self._parser, parsed, stored, owner_values=near_values
        )
        resolved = self._authorizer.completer.complete(
            parsed, self._problems, stored=stored, owners=parent.rows
        )
        return self.resolve(parsed, resolved)

    def _with_targets(self, parsed: ParsedSet, resolved: ResolvedSet) -> ParsedSet:
        """Return a set whose many-to-any objects all have a collection, read where it is stored."""
        if not parsed.unresolved:
            return parsed
        # Each field once, and each row that is stored.
        fields: dict[str, None] = {}
        keys: dict[str, None] = {}
        for item in parsed.unresolved:
            fields[item.collection_field] = None
            key = resolved.rows[item.row].key
            if key is not None:
                keys[key] = None
        stored = self._stored(parsed.collection, list(keys), tuple(fields))
        targets: list[str | None] = []
        for item in parsed.unresolved:
            # A row that is hidden or missing names no collection, as if it stored none.
            key = resolved.rows[item.row].key
            row = {} if key is None else stored.get(key, {})
            targets.append(row.get(item.collection_field))
        return self._parser.attach_resolved(parsed, targets)

    def _resolve_to_one(self, field: ParsedToOne, parent: ResolvedSet) -> ResolvedToOne:
        targets = field.targets
        lock_view(self._executor, targets.collection)
        sent = {number: key for key, number in targets.numbers_by_key.items()}
        keys = self._as_stored(targets.collection, sent)
        stored = self._stored(targets.collection, list(keys.values()), ())
        stored_rows = StoredRows(self._stored_keys(targets, stored, keys))
        resolved = self._complete(targets, stored_rows, parent)
        return ResolvedToOne(field.name, field.link, resolved, field.pairs)

    def _as_stored(self, collection: Collection, sent: Mapping[int, str]) -> dict[int, str]:
        """Return keys as PostgreSQL writes them, by the numbers of their rows."""
        stored = as_stored(self._executor, collection, list(dict.fromkeys(sent.values())))
        return {number: stored[key] for number, key in sent.items()}

    def _stored_keys(
        self, parsed: ParsedSet, stored: StoredTexts, named_keys: Mapping[int, str]
    ) -> dict[int, str | None]:
        """Return the keys of the stored rows of a set by their numbers; all other rows are new.

        `named_keys` are those by which the payload names rows.
        """
        keys: dict[int, str | None] = {}
        named: set[str] = set()
        for number, row in enumerate(parsed.rows):
            key = named_keys.get(number)
            # A row under `create` is new even if its key is stored: the database refuses it then.
            if key is not None and key in stored and row.expects is not Expects.ABSENT:
                # Objects of one key are one row already, unless it is written in several ways.
                if key in named:
                    problem = invalid_item(REPEATED, parsed.collection.name)
                    self._problems.add(problem, row.position)
                named.add(key)
                keys[number] = key
            elif row.expects is Expects.PRESENT:
                # Without this entry the row would count as a new one.
                keys[number] = None
                sent = sent_key(parsed.collection, row.sent)
                self._add_missing_item(parsed.collection, row.position, sent or key)
        return keys

    # Lists

    def _resolve_list(self, field: ParsedToMany, parent: ResolvedSet) -> ResolvedToMany:
        elements = field.elements
        state = self._list_state(field, parent)
        keys = self._stored_keys(elements, state.stored, state.keys)
        unchanged: dict[int, frozenset[str]] = {}
        for owner, number in field.pairs:
            key = keys.get(number)
            if key is not None:
                # A new owner has no stored list in which the element could be already.
                near = state.near_values.get(owner)
                element = elements.rows[number]
                unchanged[number] = _unchanged_fields(field, element, state.stored[key], near)
        dropped = self._dropped(field, state)
        unlinked = None
        if dropped and not deletes_dropped(field.link, elements.collection):
            unlinked = self._unlinked(field, dropped, parent)
        stored = StoredRows(keys, unchanged)
        resolved = self._complete(elements, stored, parent, state.near_values)
        return ResolvedToMany(field.name, field.link, resolved, field.pairs, dropped, unlinked)

    def _list_state(self, field: ParsedToMany, parent: ResolvedSet) -> _ListState:
        """Lock and read the elements that are named, and those of replaced lists."""
        elements = field.elements
        near_values = self._near_values(field, parent)
        sent_keys = {number: key for key, number in elements.numbers_by_key.items()}
        for owner, number in field.pairs:
            key = _key_in_list(field, elements.rows[number].values, near_values.get(owner))
            if key is not None:
                sent_keys.setdefault(number, key)
        named = self._as_stored(elements.collection, sent_keys)
        sent_removals: dict[int, str] = {}
        for number, removal in enumerate(field.removals):
            key = _key_in_list(field, removal.values, near_values.get(removal.owner))
            if key is not None:
                sent_removals[number] = key
        removed = self._as_stored(elements.collection, sent_removals)
        # A row may be named twice, under `update` and under `delete`; it is refused later.
        keys = list(dict.fromkeys([*named.values(), *removed.values()]))
        owners = [owner for owner in field.replaced_lists if owner in near_values]
        replaced = [near_values[owner] for owner in owners]
        # The lock comes before the reads, so that what they show stays true until the end.
        self._lock(field, keys, replaced)
        fields = (field.link.far.name, *self._visible_order_field(field))
        stored = self._stored(elements.collection, keys, fields)
        self._name_lists(field, stored, near_values)
        in_order = [removed.get(number) for number in range(len(field.removals))]
        return _ListState(near_values, named, in_order, stored)

    def _visible_order_field(self, field: ParsedToMany) -> tuple[str, ...]:
        """Return the field that keeps the order of a list, if the caller may read it.

        Where it may not, the service writes the positions without comparing them.
        """
        order = field.link.relation.order_field
        if not order:
            return ()
        context = self._executor.context
        view = view_of(
            field.elements.collection.name,
            catalogue=context.snapshot.catalogue,
            policy=context.actor.policy,
        )
        if view and view.includes(order):
            return (order,)
        return ()

    def _lock(self, field: ParsedToMany, keys: list[str], near_values: list[str]) -> None:
        """Lock the rows that are about to be read.

        A row that another transaction moves to another list meanwhile must not be dropped here.
        """
        if keys or near_values:
            lock_list(
                self._executor,
                field.elements.collection,
                field.link.far,
                keys=keys,
                near_values=near_values,
            )

    def _near_values(self, field: ParsedToMany, parent: ResolvedSet) -> dict[int, str]:
        """Return what stored owners hold in the column that their elements point to."""
        owners: dict[str, int] = {}
        for number, row in enumerate(parent.rows):
            if row.key is not None and not row.is_new:
                owners[row.key] = number
        near = field.link.near
        far = field.link.far
        cast = "text" if has_one_text(far) else key_cast(far)
        if near == parent.collection.key and cast == "text":
            return {owner: key for key, owner in owners.items()}
        near_values: dict[int, str] = {}
        # The foreign key points to another unique column, or may have a type of its own.
        values = column_by_key(self._executor, parent.collection, near, list(owners), cast=cast)
        for key, value in values.items():
            if value is not None:
                near_values[owners[key]] = value
        return near_values

    def _name_lists(
        self, field: ParsedToMany, stored: StoredTexts, near_values: Mapping[int, str]
    ) -> None:
        """Write the values by which elements belong to lists as those of the owners are written."""
        collection = field.elements.collection
        far = field.link.far
        if has_one_text(far) or not stored or not near_values:
            return
        owners = list(near_values.values())
        lists = list_values(self._executor, collection, far, keys=list(stored), near_values=owners)
        for key, row in stored.items():
            # What is hidden from the caller stays so.
            if row[far.name] is not None:
                row[far.name] = lists.get(key, row[far.name])

    # Rows that leave lists

    def _dropped(self, field: ParsedToMany, state: _ListState) -> dict[str, int]:
        """Return the keys of the rows that leave lists, each with the owner of its list."""
        dropped: dict[str, int] = {}
        self._drop_removed(field, state, dropped)
        self._drop_unnamed(field, state, dropped)
        return dropped

    def _drop_removed(
        self, field: ParsedToMany, state: _ListState, dropped: dict[str, int]
    ) -> None:
        """Drop the elements of `delete` from the lists in which they are."""
        elements = field.elements
        named = set(state.keys.values())
        for removal, key in zip(field.removals, state.removed, strict=True):
            row = state.stored.get(key or "", {})
            owner_value = row.get(field.link.far.name)
            # In another list, or in none: `delete` takes rows of this list only.
            if (
                key is None
                or owner_value is None
                or owner_value != state.near_values.get(removal.owner)
            ):
                self._add_missing_item(elements.collection, removal.position, removal.sent)
            elif key in named:
                problem = invalid_item(REPEATED, elements.collection.name)
                self._problems.add(problem, removal.position)
            else:
                dropped.setdefault(key, removal.owner)

    def _drop_unnamed(
        self, field: ParsedToMany, state: _ListState, dropped: dict[str, int]
    ) -> None:
        """Drop from replaced lists the stored elements that no array names."""
        owners: dict[str, int] = {}
        for owner in field.replaced_lists:
            # A new owner has no stored list that could be replaced.
            if owner in state.near_values:
                owners[state.near_values[owner]] = owner
        if not owners:
            return
        far = field.link.far
        elements = field.elements
        # Read as the caller sees them: elements that are hidden from it stay in the list.
        query = Query(filter=AtField(FieldName(far.name), OperatorTest("_in", (Slot(0),))))
        stored = self._read(elements.collection, query, list(owners), (far.name,))
        self._name_lists(field, stored, state.near_values)
        named = set(state.keys.values())
        for key, row in stored.items():
            if key not in named:
                dropped.setdefault(key, owners[str(row[far.name])])

    def _unlinked(
        self, field: ParsedToMany, dropped: Mapping[str, int], parent: ResolvedSet
    ) -> ResolvedSet:
        """Return the dropped rows, changed as if the caller itself set the field to null."""
        collection = field.elements.collection
        far = field.link.far
        sent: Mapping[str, object] = {far.name: None}
        values: RowValues = {part.name: None for part in far.set_fields if part.takes_null}
        parsed_rows: list[ParsedRow] = []
        for owner in dropped.values():
            position = parent.rows[owner].position.below(field.name)
            # Its owner has no `field`: the row does not point to it any more.
            parsed_rows.append(
                ParsedRow(sent, values, position, Expects.PRESENT, owner=Owner(owner))
            )
        parsed = ParsedSet(collection, field.elements.level, parsed_rows)
        stored = StoredRows(dict(enumerate(dropped)))
        problems = self._problems
        if not far.takes_null:
            reason = f'they cannot be without "{far.name}"'
            way_out = "delete them, or set one_deselect_action to delete"
            problem = invalid_item(f"{reason}: {way_out}", collection.name)
            problems.add(problem, parsed_rows[0].position)
            # What else is wrong with them follows from it.
            problems = Problems()
        parsed = filtered_set(self._executor, self._parser, parsed, stored)
        leaving: list[ParsedRow] = []
        for row in parsed.rows:
            # Whatever flows add, the rows leave the list.
            all_sent = {**row.sent, **sent}
            leaving.append(row._replace(sent=all_sent, values={**row.values, **values}))
        parsed = parsed._replace(rows=leaving)
        # Completed like changes that the caller sent: the same permissions and rules apply.
        return self._authorizer.completer.complete(
            parsed, problems, stored=stored, owners=parent.rows
        )

    def _add_missing_item(
        self, collection: Collection, position: PayloadPosition, sent: object
    ) -> None:
        """Add the same problem for an item that is missing, hidden, or in another list."""
        if sent is None:
            problem = invalid_item(MISSING_KEY, collection.name)
            self._problems.add(problem, position)
            return
        name = collection.name
        message = f'A key points to an item of "{name}" that is not there, or not in this list.'
        # The name of the key field may be hidden from others than administrators.
        extensions: dict[str, object] = {"collection": collection.name, "path": []}
        if self._executor.context.actor.policy.is_admin:
            extensions |= {"field": collection.key_name} if collection.key_name else {}
            extensions["value"] = abbreviated(sent)
        self._problems.add(Problem("INVALID_FOREIGN_KEY", message, extensions), position)

    # Reads

    def _stored(
        self, collection: Collection, keys: Sequence[str], fields: tuple[str, ...]
    ) -> StoredTexts:
        """Return stored values by their primary keys, without those of rows that are hidden."""
        if not keys:
            return {}
        # Beside the keys, their columns are read: in rows that hide one there is nothing to name.
        visible = [
            AtField(FieldName(name), OperatorTest("_nnull")) for name in collection.key_names
        ]
        is_named = OperatorTest("_in", (Slot(0),))
        query = Query(key_test=is_named, filter=And(tuple(visible)))
        return self._read(collection, query, keys, fields)

    def _read(
        self, collection: Collection, query: Query, values: Sequence[str], fields: tuple[str, ...]
    ) -> StoredTexts:
        """Return the rows of a query, whose literal is a list of values."""
        query = replace(query, picks=tuple(Pick(name, FieldName(name)) for name in fields))
        items = self._executor.read_unlimited(collection.name, query, (tuple(values),))
        rows: dict[str, dict[str, str | None]] = {}
        for key, item in items.items():
            rows[key] = {name: _as_text(item[name]) for name in fields}
        for name in fields:
            # The text of a key of several columns is no value that reads show.
            if collection.fields[name].parts or not has_one_text(collection.fields[name]):
                self._replace_by_stored(collection, name, rows)
        return rows

    def _replace_by_stored(
        self, collection: Collection, name: str, rows: Mapping[str, dict[str, str | None]]
    ) -> None:
        """Replace the values that the caller sees in a field by their texts in PostgreSQL."""
        texts = column_by_key(self._executor, collection, collection.fields[name], list(rows))
        for key, row in rows.items():
            if row[name] is not None:
                row[name] = texts.get(key)


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def _key_in_list(field: ParsedToMany, values: RowValues, near: str | None) -> str | None:
    """Return the key of a row in a list, whose owner has the value `near`, None while it has none.

    The columns to the owner may be part of the key, and missing among the values.
    """
    owner_values = {} if near is None else stored_values(field.link.far, near)
    sent = {name: value for name, value in values.items() if not isinstance(value, PendingKey)}
    return field.elements.collection.key_of({**owner_values, **sent})


def _unchanged_fields(
    field: ParsedToMany, element: ParsedRow, stored: Mapping[str, str | None], near: str | None
) -> frozenset[str]:
    """Return the fields that keep list and order, as far as an element has the right values.

    An element that stays where it is needs no write, and so no permission to change it.
    """
    order = field.link.relation.order_field
    unchanged: set[str] = set()
    if near is not None and stored.get(field.link.far.name) == near:
        unchanged.update(part.name for part in field.link.far.key_fields)
    position = element.values.get(order) if order else None
    if order and position is not None and stored.get(order) == position:
        unchanged.add(order)
    return frozenset(unchanged)
