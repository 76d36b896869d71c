"""What a payload's drafts come to, before anything is written: which rows are there, whose they are, what is missing.

Reads go through the read engine, so that what a caller may not see is not there for it, and is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms.access.guard import view_of
from cms.errors import Problem, shown
from cms.query.ast import KEY, At, Name, Pick, Query, Slot, Test
from cms.query.bind import Context, bound
from cms.query.drafts import Batch, Draft, Drafter, Expects, Place, ToMany
from cms.schema.model import Collection
from cms.schema.payload import invalid
from cms.schema.specials import takes_null
from cms.store.reads import statement_for
from cms.store.rows import Session, column_by_key, lock_list

Stored = Mapping[str, Mapping[str, str | None]]
"""What rows hold in some of their fields, as text, by their keys."""


class Settler:
    """Settles one tree, from the root down."""

    def __init__(self, session: Session, drafter: Drafter) -> None:
        self._session = session
        self._drafter = drafter
        self._faults = drafter.faults

    def settle(self, batch: Batch) -> None:
        """Settle what is below a batch that is complete itself."""
        self._resolve(batch)
        for one in batch.ones.values():
            self._find(one.batch, self._stored(one.batch.collection, list(one.batch.keyed), ()))
            self._descend(one.batch)
        for many in batch.manys.values():
            self._settle_many(batch, many)
            self._descend(many.batch)

    def _descend(self, batch: Batch) -> None:
        self._session.judge.complete(batch, self._faults)
        self.settle(batch)

    def _resolve(self, batch: Batch) -> None:
        """Find out to which collection objects belong of whose row the payload does not say it."""
        if not batch.untold:
            return
        fields = tuple(dict.fromkeys(told.told_by for told in batch.untold))
        keys = [told.draft.key for told in batch.untold if told.draft.key]
        stored = self._stored(batch.collection, keys, fields)
        for told in batch.untold:
            self._drafter.attach_told(batch, told, stored.get(told.draft.key or "", {}).get(told.told_by))

    def _find(self, batch: Batch, stored: Stored) -> None:
        """Tell new rows from those that are there."""
        for draft in batch.drafts:
            key = draft.values.get(batch.key_field)
            draft.new = key not in stored or draft.expects is Expects.ABSENT
            if not draft.new:
                draft.key = draft.values.pop(batch.key_field)
            elif draft.expects is Expects.PRESENT:
                draft.new = False
                self._not_there(batch.collection, draft.place, draft.sent.get(batch.key_field))

    # To-many

    def _settle_many(self, batch: Batch, many: ToMany) -> None:
        fields = (many.link.far, *self._order_seen(many))
        keys = dict.fromkeys([*many.batch.keyed, *(removal.key for removal in many.removals)])
        nears = self._nears(batch, many)
        self._hold(many, list(keys), [nears[owner] for owner in many.wholes if owner in nears])
        stored = self._stored(many.batch.collection, list(keys), fields)
        self._find(many.batch, stored)
        for owner, draft in many.pairs:
            if draft.key and not draft.new:
                _forget_what_holds(many, draft, stored[draft.key], nears.get(owner))
        self._remove(many, stored, nears)
        self._leave_out(many, nears)
        if many.dropped and not many.deletes:
            self._unlink(many)

    def _order_seen(self, many: ToMany) -> tuple[str, ...]:
        """Return the column of a list's order where this caller sees it: its places are the service's to write."""
        order, scene = many.link.relation.order, self._session.scene
        view = view_of(many.batch.collection.name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy)
        return (order,) if order and view and view.sees(order) else ()

    def _hold(self, many: ToMany, keys: list[str], nears: list[str]) -> None:
        """Keep what is about to be read as it is: a row that somebody takes into another list is not ours to drop."""
        if keys or nears:
            lock_list(self._session, many.batch.collection, many.link.far, keys=keys, nears=nears)

    def _nears(self, batch: Batch, many: ToMany) -> dict[Draft, str]:
        """Return what the rows of owners that are there already point to."""
        owners = {owner.key: owner for owner in batch.drafts if owner.key and not owner.new}
        if many.link.near == batch.key_field:
            return {owner: key for key, owner in owners.items()}
        found = column_by_key(self._session, batch.collection, many.link.near, list(owners))
        return {owners[key]: value for key, value in found.items() if value is not None}

    def _remove(self, many: ToMany, stored: Stored, nears: Mapping[Draft, str]) -> None:
        for removal in many.removals:
            holder = stored.get(removal.key, {}).get(many.link.far)
            if holder is None or holder != nears.get(removal.owner):
                self._not_there(many.batch.collection, removal.place, removal.sent)
            elif removal.key in many.batch.keyed:
                self._faults.add(invalid("it is there twice", many.batch.collection.name), removal.place)
            else:
                many.dropped.setdefault(removal.key, removal.owner)

    def _leave_out(self, many: ToMany, nears: Mapping[Draft, str]) -> None:
        """Drop the present rows of those that got a whole array, except those that any array names."""
        owners = {nears[owner]: owner for owner in many.wholes if owner in nears}
        if not owners:
            return
        present = self._read(many.batch.collection, many.link.far, list(owners), (many.link.far,))
        for key, row in present.items():
            if key not in many.batch.keyed:
                many.dropped.setdefault(key, owners[str(row[many.link.far])])

    def _unlink(self, many: ToMany) -> None:
        """Let the rows that leave be changed as anybody would change them who clears the field."""
        collection, far = many.batch.collection, many.link.far
        many.unlinked = Batch(collection, many.batch.level)
        for key, owner in many.dropped.items():
            place = owner.place.below(many.name)
            draft = Draft({far: None}, {far: None}, place, Expects.PRESENT, above=owner, key=key, new=False)
            many.unlinked.drafts.append(draft)
        if takes_null(collection.fields[far]):
            self._session.judge.complete(many.unlinked, self._faults)
            return
        reason = f'they cannot be without "{far}": delete them, or set one_deselect_action to delete'
        self._faults.add(invalid(reason, collection.name), many.unlinked.drafts[0].place)

    def _not_there(self, collection: Collection, place: Place, sent: object) -> None:
        """What is hidden, what is not there, and what is in another list look the same."""
        if sent is None:
            self._faults.add(invalid("it must hold its primary key", collection.name), place)
            return
        sentence = f'A key points to an item of "{collection.name}" that is not there, or not in this list.'
        extensions: dict[str, object] = {"collection": collection.name, "path": []}
        if self._session.scene.actor.policy.admin:
            extensions |= {"field": collection.primary_key, "value": shown(sent)}
        self._faults.add(Problem("INVALID_FOREIGN_KEY", sentence, extensions), place)

    # Reads

    def _stored(self, collection: Collection, keys: Sequence[str], fields: tuple[str, ...]) -> Stored:
        """Return the rows of the keys that are there for this caller."""
        return self._read(collection, str(collection.primary_key), keys, fields) if keys else {}

    def _read(self, collection: Collection, by: str, values: Sequence[str], fields: tuple[str, ...]) -> Stored:
        session = self._session
        picks = (Pick(KEY, Name(str(collection.primary_key))), *(Pick(name, Name(name)) for name in fields))
        query = Query(picks=picks, filter=At(Name(by), Test("_in", (Slot(0),))))
        found = statement_for(session.store, session.scene, collection.name, query)
        actor = session.scene.actor
        context = Context((tuple(values),), actor.user, actor.role)
        items = found.items(session.transaction.execute(found.text, bound(found.values, context)))
        return {
            str(item[KEY]): {name: None if item[name] is None else str(item[name]) for name in fields} for item in items
        }


def _forget_what_holds(many: ToMany, draft: Draft, stored: Mapping[str, str | None], near: str | None) -> None:
    """A row that is in its list and at its place already need not be written for it."""
    order = many.link.relation.order
    wanted = {many.link.far: near, order: draft.values.get(order or "")}
    for name, value in wanted.items():
        if name and value is not None and stored.get(name) == value:
            del draft.values[name]
