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
    PayloadParser,
    PayloadPosition,
    RowChange,
    ToMany,
)
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

    def __init__(self, write_context: WriteContext, drafter: PayloadParser) -> None:
        self._write_context = write_context
        self._drafter = drafter
        self._faults = drafter.faults

    def resolve(self, batch: ChangeSet) -> None:
        """Settle what is below a batch that is complete itself."""
        self._resolve_targets(batch)
        for one in batch.to_one_fields.values():
            self._find(one.batch, self._stored(one.batch.collection, list(one.batch.by_key), ()))
            self._descend(one.batch)
        for many in batch.to_many_fields.values():
            self._resolve_many(batch, many)
            self._descend(many.batch)

    def _descend(self, batch: ChangeSet) -> None:
        self._write_context.authorizer.complete(batch, self._faults)
        self.resolve(batch)

    def _resolve_targets(self, batch: ChangeSet) -> None:
        """Find out to which collection objects belong of whose row the payload does not say it."""
        if not batch.unresolved:
            return
        fields = tuple(dict.fromkeys(told.collection_field for told in batch.unresolved))
        keys = [told.draft.key for told in batch.unresolved if told.draft.key]
        stored = self._stored(batch.collection, keys, fields)
        for told in batch.unresolved:
            self._drafter.attach_resolved(
                batch, told, stored.get(told.draft.key or "", {}).get(told.collection_field)
            )

    def _find(self, batch: ChangeSet, stored: StoredValues) -> None:
        """Tell new rows from those that are there."""
        for draft in batch.drafts:
            key = draft.values.get(batch.key_field)
            draft.new = key not in stored or draft.expects is Expects.ABSENT
            if not draft.new:
                draft.key = draft.values.pop(batch.key_field)
            elif draft.expects is Expects.PRESENT:
                draft.new = False
                self._add_missing_item(
                    batch.collection, draft.position, draft.sent.get(batch.key_field)
                )

    # To-many

    def _resolve_many(self, batch: ChangeSet, many: ToMany) -> None:
        fields = (many.link.far, *self._order_seen(many))
        keys = dict.fromkeys([*many.batch.by_key, *(removal.key for removal in many.removals)])
        near_values = self._near_values(batch, many)
        self._lock(
            many,
            list(keys),
            [near_values[owner] for owner in many.replaced_lists if owner in near_values],
        )
        stored = self._stored(many.batch.collection, list(keys), fields)
        self._find(many.batch, stored)
        for owner, draft in many.pairs:
            if draft.key and not draft.new:
                _drop_unchanged(many, draft, stored[draft.key], near_values.get(owner))
        self._remove(many, stored, near_values)
        self._drop_unnamed(many, near_values)
        if many.dropped and not many.deletes_dropped:
            self._unlink(many)

    def _order_seen(self, many: ToMany) -> tuple[str, ...]:
        """Return the column of a list's order where this caller sees it: its places are the service's to write."""
        order, context = many.link.relation.order, self._write_context.context
        view = view_of(
            many.batch.collection.name,
            catalogue=context.snapshot.catalogue,
            policy=context.actor.policy,
        )
        return (order,) if order and view and view.sees(order) else ()

    def _lock(self, many: ToMany, keys: list[str], near_values: list[str]) -> None:
        """Keep what is about to be read as it is: a row that somebody takes into another list is not ours to drop."""
        if keys or near_values:
            lock_list(
                self._write_context,
                many.batch.collection,
                many.link.far,
                keys=keys,
                near_values=near_values,
            )

    def _near_values(self, batch: ChangeSet, many: ToMany) -> dict[RowChange, str]:
        """Return what the rows of owners that are there already point to."""
        owners = {owner.key: owner for owner in batch.drafts if owner.key and not owner.new}
        if many.link.near == batch.key_field:
            return {owner: key for key, owner in owners.items()}
        found = column_by_key(self._write_context, batch.collection, many.link.near, list(owners))
        return {owners[key]: value for key, value in found.items() if value is not None}

    def _remove(
        self, many: ToMany, stored: StoredValues, near_values: Mapping[RowChange, str]
    ) -> None:
        for removal in many.removals:
            holder = stored.get(removal.key, {}).get(many.link.far)
            if holder is None or holder != near_values.get(removal.owner):
                self._add_missing_item(many.batch.collection, removal.position, removal.sent)
            elif removal.key in many.batch.by_key:
                self._faults.add(
                    invalid_item("it is there twice", many.batch.collection.name), removal.position
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
        present = self._read(many.batch.collection, many.link.far, list(owners), (many.link.far,))
        for key, row in present.items():
            if key not in many.batch.by_key:
                many.dropped.setdefault(key, owners[str(row[many.link.far])])

    def _unlink(self, many: ToMany) -> None:
        """Let the rows that leave be changed as anybody would change them who clears the field."""
        collection, far = many.batch.collection, many.link.far
        many.unlinked = ChangeSet(collection, many.batch.level)
        for key, owner in many.dropped.items():
            position = owner.position.below(many.name)
            draft = RowChange(
                {far: None},
                {far: None},
                position,
                Expects.PRESENT,
                parent_row=owner,
                key=key,
                new=False,
            )
            many.unlinked.drafts.append(draft)
        if takes_null(collection.fields[far]):
            self._write_context.authorizer.complete(many.unlinked, self._faults)
            return
        reason = (
            f'they cannot be without "{far}": delete them, or set one_deselect_action to delete'
        )
        self._faults.add(invalid_item(reason, collection.name), many.unlinked.drafts[0].position)

    def _add_missing_item(
        self, collection: Collection, position: PayloadPosition, sent: object
    ) -> None:
        """What is hidden, what is not there, and what is in another list look the same."""
        if sent is None:
            self._faults.add(
                invalid_item("it must hold its primary key", collection.name), position
            )
            return
        sentence = f'A key points to an item of "{collection.name}" that is not there, or not in this list.'
        extensions: dict[str, object] = {"collection": collection.name, "path": []}
        if self._write_context.context.actor.policy.is_admin:
            extensions |= {"field": collection.primary_key, "value": abbreviated(sent)}
        self._faults.add(Problem("INVALID_FOREIGN_KEY", sentence, extensions), position)

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
    many: ToMany, draft: RowChange, stored: Mapping[str, str | None], near: str | None
) -> None:
    """A row that is in its list and at its place already need not be written for it."""
    order = many.link.relation.order
    wanted = {many.link.far: near, order: draft.values.get(order or "")}
    for name, value in wanted.items():
        if name and value is not None and stored.get(name) == value:
            del draft.values[name]
