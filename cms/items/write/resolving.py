"""What a payload's drafts come to, before anything is written: which rows are there, whose they are, what is missing.

Reads go through the read engine, so that what a caller may not see is not there for it, and is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms.access.guard import view_of
from cms.errors import Problem, abbreviated
from cms.items.read.prepare import statement_for
from cms.items.write.changes import (
    ChangeSet,
    Expects,
    PayloadPosition,
    RowChange,
    ToMany,
)
from cms.items.write.payload_parser import PayloadParser
from cms.items.write.rows import WriteContext, column_by_key, lock_list
from cms.query.language.ast import INTERNAL_KEY, AtField, FieldName, OperatorTest, Pick, Query, Slot
from cms.query.plan.bindings import Bindings, bind_values
from cms.schema.auto_fields import takes_null
from cms.schema.model import Collection
from cms.schema.payload import invalid_item

StoredValues = Mapping[str, Mapping[str, str | None]]
"""What rows hold in some of their fields, as text, by their keys."""


class Resolver:
    """Settles one tree, from the root down."""

    def __init__(self, write_context: WriteContext, parser: PayloadParser) -> None:
        self._write_context = write_context
        self._parser = parser
        self._problems = parser.problems

    def resolve(self, change_set: ChangeSet) -> None:
        """Settle what is below a batch that is complete itself."""
        self._resolve_targets(change_set)
        for one in change_set.to_one_fields.values():
            self._find(
                one.change_set,
                self._stored(one.change_set.collection, list(one.change_set.by_key), ()),
            )
            self._descend(one.change_set)
        for many in change_set.to_many_fields.values():
            self._resolve_many(change_set, many)
            self._descend(many.change_set)

    def _descend(self, change_set: ChangeSet) -> None:
        self._write_context.authorizer.complete(change_set, self._problems)
        self.resolve(change_set)

    def _resolve_targets(self, change_set: ChangeSet) -> None:
        """Find out to which collection objects belong of whose row the payload does not say it."""
        if not change_set.unresolved:
            return
        fields = tuple(
            dict.fromkeys(unresolved.collection_field for unresolved in change_set.unresolved)
        )
        keys = [
            unresolved.change.key for unresolved in change_set.unresolved if unresolved.change.key
        ]
        stored = self._stored(change_set.collection, keys, fields)
        for unresolved in change_set.unresolved:
            self._parser.attach_resolved(
                change_set,
                unresolved,
                stored.get(unresolved.change.key or "", {}).get(unresolved.collection_field),
            )

    def _find(self, change_set: ChangeSet, stored: StoredValues) -> None:
        """Tell new rows from those that are there."""
        for change in change_set.changes:
            key = change.values.get(change_set.key_field)
            change.is_new = key not in stored or change.expects is Expects.ABSENT
            if not change.is_new:
                change.key = change.values.pop(change_set.key_field)
            elif change.expects is Expects.PRESENT:
                change.is_new = False
                self._add_missing_item(
                    change_set.collection, change.position, change.sent.get(change_set.key_field)
                )

    # To-many

    def _resolve_many(self, change_set: ChangeSet, many: ToMany) -> None:
        fields = (many.link.far, *self._order_seen(many))
        keys = dict.fromkeys([*many.change_set.by_key, *(removal.key for removal in many.removals)])
        near_values = self._near_values(change_set, many)
        self._lock(
            many,
            list(keys),
            [near_values[owner] for owner in many.replaced_lists if owner in near_values],
        )
        stored = self._stored(many.change_set.collection, list(keys), fields)
        self._find(many.change_set, stored)
        for owner, change in many.pairs:
            if change.key and not change.is_new:
                _drop_unchanged(many, change, stored[change.key], near_values.get(owner))
        self._remove(many, stored, near_values)
        self._drop_unnamed(many, near_values)
        if many.dropped and not many.deletes_dropped:
            self._unlink(many)

    def _order_seen(self, many: ToMany) -> tuple[str, ...]:
        """Return the column of a list's order where this caller sees it: its places are the service's to write."""
        order, context = many.link.relation.order, self._write_context.context
        view = view_of(
            many.change_set.collection.name,
            catalogue=context.snapshot.catalogue,
            policy=context.actor.policy,
        )
        return (order,) if order and view and view.sees(order) else ()

    def _lock(self, many: ToMany, keys: list[str], near_values: list[str]) -> None:
        """Keep what is about to be read as it is: a row that somebody takes into another list is not ours to drop."""
        if keys or near_values:
            lock_list(
                self._write_context,
                many.change_set.collection,
                many.link.far,
                keys=keys,
                near_values=near_values,
            )

    def _near_values(self, change_set: ChangeSet, many: ToMany) -> dict[RowChange, str]:
        """Return what the rows of owners that are there already point to."""
        owners = {
            owner.key: owner for owner in change_set.changes if owner.key and not owner.is_new
        }
        if many.link.near == change_set.key_field:
            return {owner: key for key, owner in owners.items()}
        found = column_by_key(
            self._write_context, change_set.collection, many.link.near, list(owners)
        )
        return {owners[key]: value for key, value in found.items() if value is not None}

    def _remove(
        self, many: ToMany, stored: StoredValues, near_values: Mapping[RowChange, str]
    ) -> None:
        for removal in many.removals:
            holder = stored.get(removal.key, {}).get(many.link.far)
            if holder is None or holder != near_values.get(removal.owner):
                self._add_missing_item(many.change_set.collection, removal.position, removal.sent)
            elif removal.key in many.change_set.by_key:
                self._problems.add(
                    invalid_item("it is there twice", many.change_set.collection.name),
                    removal.position,
                )
            else:
                many.dropped.setdefault(removal.key, removal.owner)

    def _drop_unnamed(self, many: ToMany, near_values: Mapping[RowChange, str]) -> None:
        """Drop the present rows of those that got a whole array, except those that any array names."""
        owners = {
            near_values[owner]: owner for owner in many.replaced_lists if owner in near_values
        }
        if not owners:
            return
        present = self._read(
            many.change_set.collection, many.link.far, list(owners), (many.link.far,)
        )
        for key, row in present.items():
            if key not in many.change_set.by_key:
                many.dropped.setdefault(key, owners[str(row[many.link.far])])

    def _unlink(self, many: ToMany) -> None:
        """Let the rows that leave be changed as anybody would change them who clears the field."""
        collection, far = many.change_set.collection, many.link.far
        many.unlinked = ChangeSet(collection, many.change_set.level)
        for key, owner in many.dropped.items():
            position = owner.position.below(many.name)
            change = RowChange(
                {far: None},
                {far: None},
                position,
                Expects.PRESENT,
                parent_row=owner,
                key=key,
                is_new=False,
            )
            many.unlinked.changes.append(change)
        if takes_null(collection.fields[far]):
            self._write_context.authorizer.complete(many.unlinked, self._problems)
            return
        reason = (
            f'they cannot be without "{far}": delete them, or set one_deselect_action to delete'
        )
        self._problems.add(invalid_item(reason, collection.name), many.unlinked.changes[0].position)

    def _add_missing_item(
        self, collection: Collection, position: PayloadPosition, sent: object
    ) -> None:
        """What is hidden, what is not there, and what is in another list look the same."""
        if sent is None:
            self._problems.add(
                invalid_item("it must hold its primary key", collection.name), position
            )
            return
        sentence = f'A key points to an item of "{collection.name}" that is not there, or not in this list.'
        extensions: dict[str, object] = {"collection": collection.name, "path": []}
        if self._write_context.context.actor.policy.is_admin:
            extensions |= {"field": collection.primary_key, "value": abbreviated(sent)}
        self._problems.add(Problem("INVALID_FOREIGN_KEY", sentence, extensions), position)

    # Reads

    def _stored(
        self, collection: Collection, keys: Sequence[str], fields: tuple[str, ...]
    ) -> StoredValues:
        """Return the rows of the keys that are there for this caller."""
        return self._read(collection, str(collection.primary_key), keys, fields) if keys else {}

    def _read(
        self, collection: Collection, by: str, values: Sequence[str], fields: tuple[str, ...]
    ) -> StoredValues:
        write_context = self._write_context
        picks = (
            Pick(INTERNAL_KEY, FieldName(str(collection.primary_key))),
            *(Pick(name, FieldName(name)) for name in fields),
        )
        query = Query(picks=picks, filter=AtField(FieldName(by), OperatorTest("_in", (Slot(0),))))
        found = statement_for(write_context.store, write_context.context, collection.name, query)
        actor = write_context.context.actor
        bindings = Bindings((tuple(values),), actor.user, actor.role)
        items = found.items(
            write_context.transaction.execute(found.text, bind_values(found.values, bindings))
        )
        return {
            str(item[INTERNAL_KEY]): {
                name: None if item[name] is None else str(item[name]) for name in fields
            }
            for item in items
        }


def _drop_unchanged(
    many: ToMany, change: RowChange, stored: Mapping[str, str | None], near: str | None
) -> None:
    """A row that is in its list and at its place already need not be written for it."""
    order = many.link.relation.order
    wanted = {many.link.far: near, order: change.values.get(order or "")}
    for name, value in wanted.items():
        if name and value is not None and stored.get(name) == value:
            del change.values[name]
