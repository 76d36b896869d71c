"""Resolves the tree of a payload before anything is written.

It finds out which rows exist, to whose lists they belong, and which rows leave a list. All reads
use the read engine: a row that the caller may not see is missing for it, and is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms.access.guard import view_of
from cms.errors import Problem, abbreviated
from cms.items.write.changes import ChangeSet, Expects, PayloadPosition, RowChange, ToMany
from cms.items.write.payload_parser import PayloadParser
from cms.items.write.rows import WriteContext, column_by_key, lock_list
from cms.items.write.transaction_reads import find_unlimited
from cms.query.language.ast import AtField, OperatorTest, Pick, Query, RowOutput, Slot
from cms.schema.auto_fields import takes_null
from cms.schema.field_names import FieldName
from cms.schema.model import Collection
from cms.schema.payload import invalid_item

StoredValues = Mapping[str, Mapping[str, str | None]]
"""What rows hold in some of their fields, as text, by their keys."""


class Resolver:
    """Resolves one tree, from the root down."""

    def __init__(self, write_context: WriteContext, parser: PayloadParser) -> None:
        self._write_context = write_context
        self._parser = parser
        self._problems = parser.problems

    def resolve(self, change_set: ChangeSet) -> None:
        """Resolve what is below a change set that is complete itself."""
        self._resolve_targets(change_set)
        for to_one in change_set.to_one_fields.values():
            targets = to_one.change_set
            self._find_rows(targets, self._stored(targets.collection, list(targets.by_key), ()))
            self._descend(targets)
        for to_many in change_set.to_many_fields.values():
            self._resolve_list(change_set, to_many)
            self._descend(to_many.change_set)

    def _descend(self, change_set: ChangeSet) -> None:
        self._write_context.authorizer.complete(change_set, self._problems)
        self.resolve(change_set)

    def _resolve_targets(self, change_set: ChangeSet) -> None:
        """Read the collections of many-to-any objects for which the payload does not say them."""
        unresolved_items = change_set.unresolved
        if not unresolved_items:
            return
        fields = tuple(dict.fromkeys(item.collection_field for item in unresolved_items))
        keys = [item.change.key for item in unresolved_items if item.change.key]
        stored = self._stored(change_set.collection, keys, fields)
        for item in unresolved_items:
            row = stored.get(item.change.key or "", {})
            self._parser.attach_resolved(change_set, item, row.get(item.collection_field))

    def _find_rows(self, change_set: ChangeSet, stored: StoredValues) -> None:
        """Tell new rows from stored ones."""
        for change in change_set.changes:
            key = change.values.get(change_set.key_field)
            change.is_new = key not in stored or change.expects is Expects.ABSENT
            if not change.is_new:
                change.key = change.values.pop(change_set.key_field)
            elif change.expects is Expects.PRESENT:
                change.is_new = False
                sent_key = change.sent.get(change_set.key_field)
                self._add_missing_item(change_set.collection, change.position, sent_key)

    # Lists

    def _resolve_list(self, change_set: ChangeSet, to_many: ToMany) -> None:
        elements = to_many.change_set
        removed_keys = [removal.key for removal in to_many.removals]
        keys = list(dict.fromkeys([*elements.by_key, *removed_keys]))
        near_values = self._near_values(change_set, to_many)
        replaced = [near_values[owner] for owner in to_many.replaced_lists if owner in near_values]
        # The lock comes before the reads, so that what they show stays true until the end.
        self._lock(to_many, keys, replaced)
        fields = (to_many.link.far, *self._visible_order_field(to_many))
        stored = self._stored(elements.collection, keys, fields)
        self._find_rows(elements, stored)
        # An element that stays where it is needs no write, and no permission to change it.
        for owner, element in to_many.pairs:
            if element.key and not element.is_new:
                _drop_unchanged(to_many, element, stored[element.key], near_values.get(owner))
        self._drop_removed(to_many, stored, near_values)
        self._drop_unnamed(to_many, near_values)
        if to_many.dropped and not to_many.deletes_dropped:
            self._unlink(to_many)

    def _visible_order_field(self, to_many: ToMany) -> tuple[str, ...]:
        """Return the field that keeps the order of a list, if the caller may read it.

        Where it may not, the service writes the places without comparing them.
        """
        order = to_many.link.relation.order_field
        if not order:
            return ()
        context = self._write_context.context
        view = view_of(
            to_many.change_set.collection.name,
            catalogue=context.snapshot.catalogue,
            policy=context.actor.policy,
        )
        return (order,) if view and view.sees(order) else ()

    def _lock(self, to_many: ToMany, keys: list[str], near_values: list[str]) -> None:
        """Lock the rows that are about to be read.

        A row that another transaction moves to another list meanwhile must not be dropped here.
        """
        if keys or near_values:
            lock_list(
                self._write_context,
                to_many.change_set.collection,
                to_many.link.far,
                keys=keys,
                near_values=near_values,
            )

    def _near_values(self, change_set: ChangeSet, to_many: ToMany) -> dict[RowChange, str]:
        """Return what the elements of stored owners hold in the field that points to them."""
        owners = {
            owner.key: owner for owner in change_set.changes if owner.key and not owner.is_new
        }
        near = to_many.link.near
        if near == change_set.key_field:
            return {owner: key for key, owner in owners.items()}
        values = column_by_key(self._write_context, change_set.collection, near, list(owners))
        return {owners[key]: value for key, value in values.items() if value is not None}

    def _drop_removed(
        self, to_many: ToMany, stored: StoredValues, near_values: Mapping[RowChange, str]
    ) -> None:
        """Drop the elements of `delete` from the lists in which they are."""
        elements = to_many.change_set
        for removal in to_many.removals:
            owner_value = stored.get(removal.key, {}).get(to_many.link.far)
            if owner_value is None or owner_value != near_values.get(removal.owner):
                self._add_missing_item(elements.collection, removal.position, removal.sent)
            elif removal.key in elements.by_key:
                problem = invalid_item("it is there twice", elements.collection.name)
                self._problems.add(problem, removal.position)
            else:
                to_many.dropped.setdefault(removal.key, removal.owner)

    def _drop_unnamed(self, to_many: ToMany, near_values: Mapping[RowChange, str]) -> None:
        """Drop from replaced lists the stored elements that no array names."""
        owners = {
            near_values[owner]: owner for owner in to_many.replaced_lists if owner in near_values
        }
        if not owners:
            return
        far = to_many.link.far
        stored = self._read(to_many.change_set.collection, far, list(owners), (far,))
        for key, row in stored.items():
            if key not in to_many.change_set.by_key:
                to_many.dropped.setdefault(key, owners[str(row[far])])

    def _unlink(self, to_many: ToMany) -> None:
        """Change the dropped rows as if the caller itself set the field to null."""
        collection = to_many.change_set.collection
        far = to_many.link.far
        unlinked = ChangeSet(collection, to_many.change_set.level)
        to_many.unlinked = unlinked
        for key, owner in to_many.dropped.items():
            change = RowChange(
                {far: None},
                {far: None},
                owner.position.below(to_many.name),
                Expects.PRESENT,
                parent_row=owner,
                key=key,
                is_new=False,
            )
            unlinked.changes.append(change)
        # Completed like changes that the caller sent: the same permissions and rules apply.
        if takes_null(collection.fields[far]):
            self._write_context.authorizer.complete(unlinked, self._problems)
            return
        reason = (
            f'they cannot be without "{far}": delete them, or set one_deselect_action to delete'
        )
        self._problems.add(invalid_item(reason, collection.name), unlinked.changes[0].position)

    def _add_missing_item(
        self, collection: Collection, position: PayloadPosition, sent_key: object
    ) -> None:
        """Add the same problem for an item that is missing, hidden, or in another list."""
        if sent_key is None:
            problem = invalid_item("it must hold its primary key", collection.name)
            self._problems.add(problem, position)
            return
        name = collection.name
        message = f'A key points to an item of "{name}" that is not there, or not in this list.'
        extensions: dict[str, object] = {"collection": collection.name, "path": []}
        if self._write_context.context.actor.policy.is_admin:
            extensions["field"] = collection.primary_key
            extensions["value"] = abbreviated(sent_key)
        self._problems.add(Problem("INVALID_FOREIGN_KEY", message, extensions), position)

    # Reads

    def _stored(
        self, collection: Collection, keys: Sequence[str], fields: tuple[str, ...]
    ) -> StoredValues:
        """Return the rows of these keys that exist for this caller."""
        if not keys:
            return {}
        return self._read(collection, str(collection.primary_key), keys, fields)

    def _read(
        self, collection: Collection, column: str, values: Sequence[str], fields: tuple[str, ...]
    ) -> StoredValues:
        """Return the rows that hold one of the values in a column."""
        named = tuple(Pick(name, FieldName(name)) for name in fields)
        is_one_of = AtField(FieldName(column), OperatorTest("_in", (Slot(0),)))
        query = Query(picks=(RowOutput.KEY, *named), filter=is_one_of)
        items = find_unlimited(
            self._write_context.store,
            self._write_context.context,
            self._write_context.transaction.execute,
            collection.name,
            query,
            (tuple(values),),
        )
        rows: dict[str, dict[str, str | None]] = {}
        for item in items:
            rows[str(item[RowOutput.KEY])] = {name: _as_text(item[name]) for name in fields}
        return rows


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def _drop_unchanged(
    to_many: ToMany, element: RowChange, stored: Mapping[str, str | None], near: str | None
) -> None:
    """Do not write an element for a list and place that it has already."""
    order = to_many.link.relation.order_field
    wanted = {to_many.link.far: near, order: element.values.get(order or "")}
    for name, value in wanted.items():
        if name and value is not None and stored.get(name) == value:
            del element.values[name]
