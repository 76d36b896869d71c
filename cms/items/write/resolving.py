"""Resolves the related items of a payload before anything is written.

The resolver finds out which rows are stored, to whose lists they belong, and which rows leave a
list. It reads as the caller may read: a row that the caller cannot see is refused like a missing
one if the payload names it, and stays in its list if not.

Of a to-many field, the elements' column `far` points to the owner's column `near` (`Link`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from cms.query.language.ast import AtField, OperatorTest, Pick, Query, Slot
from cms.query.sql.arguments import key_cast
from cms.schema.auto_fields import takes_null
from cms.schema.model import Collection
from cms.schema.names import FieldName
from cms.schema.payload import MISSING_KEY, REPEATED, RowValues, invalid_item

_NO_VALUES: Mapping[int, str] = {}

StoredTexts = Mapping[str, dict[str, str | None]]
"""What rows hold in some of their fields, as text, by their keys."""


@dataclass(frozen=True, slots=True)
class _ListState:
    """The stored content of the lists at one field, locked.

    `near_values` are the values that elements of stored owners hold in the field that points to
    them, by the owners' numbers. `stored` are the stored rows that the payload names, in whichever
    list they are. `stored_keys` has the keys of the payload as PostgreSQL writes them, by the keys
    as sent; `named` are those of elements.
    """

    near_values: Mapping[int, str]
    stored: StoredTexts
    stored_keys: Mapping[str, str]
    named: frozenset[str]


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
        keys = as_stored(self._executor, targets.collection, list(targets.numbers_by_key))
        stored = self._stored(targets.collection, list(keys.values()), ())
        stored_rows = StoredRows(self._stored_keys(targets, stored, keys))
        resolved = self._complete(targets, stored_rows, parent)
        return ResolvedToOne(field.name, field.link, resolved, field.pairs)

    def _stored_keys(
        self, parsed: ParsedSet, stored: StoredTexts, stored_keys: Mapping[str, str]
    ) -> dict[int, str | None]:
        """Return the keys of the stored rows of a set by their numbers; all other rows are new."""
        keys: dict[int, str | None] = {}
        named: set[str] = set()
        for number, row in enumerate(parsed.rows):
            key = row.values.get(parsed.collection.key_name)
            if key is not None:
                key = stored_keys.get(key, key)
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
                sent_key = row.sent.get(parsed.collection.key_name)
                self._add_missing_item(parsed.collection, row.position, sent_key)
        return keys

    # Lists

    def _resolve_list(self, field: ParsedToMany, parent: ResolvedSet) -> ResolvedToMany:
        elements = field.elements
        state = self._list_state(field, parent)
        keys = self._stored_keys(elements, state.stored, state.stored_keys)
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
        if dropped and not deletes_dropped(field.link):
            unlinked = self._unlinked(field, dropped, parent)
        stored = StoredRows(keys, unchanged)
        resolved = self._complete(elements, stored, parent, state.near_values)
        return ResolvedToMany(field.name, field.link, resolved, field.pairs, dropped, unlinked)

    def _list_state(self, field: ParsedToMany, parent: ResolvedSet) -> _ListState:
        """Lock and read the elements that are named, and those of replaced lists."""
        elements = field.elements
        # A row may be named twice, under `update` and under `delete`; it is refused later.
        removed_keys = [removal.key for removal in field.removals]
        sent_keys = list(dict.fromkeys([*elements.numbers_by_key, *removed_keys]))
        stored_keys = as_stored(self._executor, elements.collection, sent_keys)
        keys = list(dict.fromkeys(stored_keys.values()))
        named = frozenset(stored_keys[key] for key in elements.numbers_by_key)
        near_values = self._near_values(field, parent)
        owners = [owner for owner in field.replaced_lists if owner in near_values]
        replaced = [near_values[owner] for owner in owners]
        # The lock comes before the reads, so that what they show stays true until the end.
        self._lock(field, keys, replaced)
        fields = (field.link.far, *self._visible_order_field(field))
        stored = self._stored(elements.collection, keys, fields)
        self._name_lists(field, stored, near_values)
        return _ListState(near_values, stored, stored_keys, named)

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
        far = field.elements.collection.fields[field.link.far]
        cast = "text" if has_one_text(far) else key_cast(far)
        if near == parent.collection.key_name and cast == "text":
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
        if has_one_text(collection.fields[far]) or not stored or not near_values:
            return
        owners = list(near_values.values())
        lists = list_values(self._executor, collection, far, keys=list(stored), near_values=owners)
        for key, row in stored.items():
            # What is hidden from the caller stays so.
            if row[far] is not None:
                row[far] = lists.get(key, row[far])

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
        for removal in field.removals:
            key = state.stored_keys[removal.key]
            owner_value = state.stored.get(key, {}).get(field.link.far)
            # In another list, or in none: `delete` takes rows of this list only.
            if owner_value is None or owner_value != state.near_values.get(removal.owner):
                self._add_missing_item(elements.collection, removal.position, removal.sent)
            elif key in state.named:
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
        stored = self._read(elements.collection, far, list(owners), (far,))
        self._name_lists(field, stored, state.near_values)
        for key, row in stored.items():
            if key not in state.named:
                dropped.setdefault(key, owners[str(row[far])])

    def _unlinked(
        self, field: ParsedToMany, dropped: Mapping[str, int], parent: ResolvedSet
    ) -> ResolvedSet:
        """Return the dropped rows, changed as if the caller itself set the field to null."""
        collection = field.elements.collection
        far = field.link.far
        unlinking: RowValues = {far: None}
        parsed_rows: list[ParsedRow] = []
        for owner in dropped.values():
            position = parent.rows[owner].position.below(field.name)
            # Its owner has no `field`: the row does not point to it any more.
            parsed_rows.append(
                ParsedRow(unlinking, unlinking, position, Expects.PRESENT, owner=Owner(owner))
            )
        parsed = ParsedSet(collection, field.elements.level, parsed_rows)
        stored = StoredRows(dict(enumerate(dropped)))
        problems = self._problems
        if not takes_null(collection.fields[far]):
            reason = (
                f'they cannot be without "{far}": delete them, or set one_deselect_action to delete'
            )
            problems.add(invalid_item(reason, collection.name), parsed_rows[0].position)
            # What else is wrong with them follows from it.
            problems = Problems()
        parsed = filtered_set(self._executor, self._parser, parsed, stored)
        leaving: list[ParsedRow] = []
        for row in parsed.rows:
            # Whatever flows add, the rows leave the list.
            sent = {**row.sent, **unlinking}
            leaving.append(row._replace(sent=sent, values={**row.values, **unlinking}))
        parsed = parsed._replace(rows=leaving)
        # Completed like changes that the caller sent: the same permissions and rules apply.
        return self._authorizer.completer.complete(
            parsed, problems, stored=stored, owners=parent.rows
        )

    def _add_missing_item(
        self, collection: Collection, position: PayloadPosition, sent_key: object
    ) -> None:
        """Add the same problem for an item that is missing, hidden, or in another list."""
        if sent_key is None:
            problem = invalid_item(MISSING_KEY, collection.name)
            self._problems.add(problem, position)
            return
        name = collection.name
        message = f'A key points to an item of "{name}" that is not there, or not in this list.'
        # The name of the key field may be hidden from others than administrators.
        extensions: dict[str, object] = {"collection": collection.name, "path": []}
        if self._executor.context.actor.policy.is_admin:
            extensions["field"] = collection.primary_key
            extensions["value"] = abbreviated(sent_key)
        self._problems.add(Problem("INVALID_FOREIGN_KEY", message, extensions), position)

    # Reads

    def _stored(
        self, collection: Collection, keys: Sequence[str], fields: tuple[str, ...]
    ) -> StoredTexts:
        """Return stored values by their primary keys, without those of rows that are hidden."""
        if not keys:
            return {}
        return self._read(collection, str(collection.primary_key), keys, fields)

    def _read(
        self, collection: Collection, column: str, values: Sequence[str], fields: tuple[str, ...]
    ) -> StoredTexts:
        """Return the rows that hold one of the values in a column."""
        picks = tuple(Pick(name, FieldName(name)) for name in fields)
        is_one_of = AtField(FieldName(column), OperatorTest("_in", (Slot(0),)))
        query = Query(picks=picks, filter=is_one_of)
        items = self._executor.read_unlimited(collection.name, query, (tuple(values),))
        rows: dict[str, dict[str, str | None]] = {}
        for key, item in items.items():
            rows[key] = {name: _as_text(item[name]) for name in fields}
        for name in fields:
            if not has_one_text(collection.fields[name]):
                self._replace_by_stored(collection, name, rows)
        return rows

    def _replace_by_stored(
        self, collection: Collection, name: str, rows: Mapping[str, dict[str, str | None]]
    ) -> None:
        """Replace the values that the caller sees in a field by their texts in PostgreSQL."""
        texts = column_by_key(self._executor, collection, name, list(rows))
        for key, row in rows.items():
            if row[name] is not None:
                row[name] = texts.get(key)


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def _unchanged_fields(
    field: ParsedToMany, element: ParsedRow, stored: Mapping[str, str | None], near: str | None
) -> frozenset[str]:
    """Return the fields that keep list and order, as far as an element has the right values.

    An element that stays where it is needs no write, and so no permission to change it.
    """
    order = field.link.relation.order_field
    unchanged: set[str] = set()
    if near is not None and stored.get(field.link.far) == near:
        unchanged.add(field.link.far)
    position = element.values.get(order) if order else None
    if order and position is not None and stored.get(order) == position:
        unchanged.add(order)
    return frozenset(unchanged)
