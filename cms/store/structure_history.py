"""The history of the structure: records of collections, fields and relations as a change finds and as it leaves them.

The records before and after are compared, whatever changed them: a field that goes takes relations along, a junction
brings fields, and permissions follow. What is not named by the call is part of what is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cms import jsontext
from cms.fragment import Fragment, fill, param, quoted, text
from cms.query.arrays import array
from cms.query.expressions import TRUE
from cms.query.recorded import whole_row
from cms.schema.build import is_system
from cms.schema.model import Catalogue, Collection, Field, Relation
from cms.schema.records import Record, collection_record, field_record, relation_record
from cms.schema.types import MASK
from cms.store.database import Transaction
from cms.store.indexes import coming, with_index
from cms.store.once import Once
from cms.store.rows import author
from cms.store.snapshot import load_within
from cms.store.statements import statement
from cms.store.store import Identity, Scene, Store

COLLECTIONS, FIELDS, RELATIONS = "system_collections", "system_fields", "system_relations"
PERMISSIONS = "system_permissions"
GOES_ALONG = ("system_presets", "system_shares")
"""What speaks of a collection, and goes with it."""

Place = tuple[str, ...]
"""Where a record is: its system collection, the collection that it is of, and in that the field, or its own key."""

Source = Record | Field | Relation
Sources = dict[Place, Source]

Author = tuple[str | None, ...]
"""User, address, user agent and origin."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Named:
    """A record that a call is about; `former` is the name that its field had before."""

    place: Place
    former: str | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """What has been done to a record: as it was, and as it is; None where it was not there, or is no more."""

    place: Place
    before: Record | None
    after: Record | None

    @property
    def action(self) -> str:
        if self.before is None:
            return "create"
        return "delete" if self.after is None else "update"

    @property
    def item(self) -> str:
        """The name under which the history has it."""
        return self.place[-1] if self.place[0] in (PERMISSIONS, *GOES_ALONG) else ".".join(self.place[1:])

    @property
    def data(self) -> Record | None:
        """What the revision holds: the record, of a deletion the last one; None where nothing changed."""
        if self.before == self.after:
            return None
        return self.before if self.after is None else self.after

    @property
    def delta(self) -> Record | None:
        """What changed; of settings and of the column the members that did."""
        if self.before is None or self.after is None:
            return self.after
        changed = {name: value for name, value in self.after.items() if self.before[name] != value}
        return {
            name: _members(self.before[name], value) if name in ("meta", "schema") else value
            for name, value in changed.items()
        }


def restructure(
    store: Store,
    identity: Identity,
    work: Callable[[Transaction, Scene], T],
    named: Callable[[T], Iterable[Named]],
    *,
    dropped: str | None = None,
    once: Once | None = None,
) -> T:
    """Change the structure as `Store.restructuring` does, and write down what has become of it.

    `named` returns, of what the work returned, the records that the call is about; `dropped` is a collection that goes.
    """

    def recorded(transaction: Transaction, scene: Scene) -> T:
        stored = _permissions(transaction, scene.snapshot.catalogue)
        if dropped and dropped in scene.snapshot.catalogue.collections:
            stored |= _going_along(transaction, scene.snapshot.catalogue, dropped)
        result = work(transaction, scene)
        records = list(dict.fromkeys(named(result)))
        renamed = _renamed(transaction, records)
        before = _records(scene.snapshot.catalogue, renamed) | stored
        catalogue = load_within(transaction).catalogue
        after = _records(catalogue, {}) | _late_indexes(transaction, catalogue) | _permissions(transaction, catalogue)
        _mask_defaults(transaction, before, after)
        _write_down(transaction, author(scene, identity.caller), records, before, after)
        return result

    return store.restructuring(identity, recorded, once=once)


def _renamed(transaction: Transaction, named: Iterable[Named]) -> dict[tuple[str, str], str]:
    """Return the new names of fields by their places, once the history has followed them."""
    renamed = {(one.place[1], one.former): one.place[2] for one in named if one.former and one.former != one.place[2]}
    for (collection, former), name in renamed.items():
        transaction.execute(statement("rename_in_history"), (f"{collection}.{former}", f"{collection}.{name}"))
    return renamed


def _mask_defaults(transaction: Transaction, before: Sources, after: Sources) -> None:
    """Let older revisions of fields that have become secrets tell their defaults no longer."""
    for place, field in after.items():
        former = before.get(place)
        if isinstance(field, Field) and field.secret and isinstance(former, Field) and not former.secret:
            transaction.execute(statement("mask_default_in_history"), (".".join(place[1:]), MASK))


def _write_down(transaction: Transaction, who: Author, named: list[Named], before: Sources, after: Sources) -> None:
    roots = [_act(one.place, before, after) for one in named]
    written = _note(transaction, who, [(act, None) for act in roots])
    parents = {act.place[1]: revision for act, revision in zip(roots, written, strict=True)}
    first = next((revision for revision in written if revision is not None), None)
    known = {one.place for one in named}
    places = sorted(place for place in before.keys() | after.keys() if place not in known)
    others = [_act(place, before, after) for place in places if before.get(place) != after.get(place)]
    changed = [act for act in others if act.data is not None]
    _note(transaction, who, [(act, parents.get(act.place[1]) or first) for act in changed])


def _records(catalogue: Catalogue, renamed: Mapping[tuple[str, str], str]) -> Sources:
    """Return everything that a record is made of, of fields that were renamed at their new places."""
    found: Sources = {}
    for collection in catalogue.collections.values():
        if not collection.system:
            found[COLLECTIONS, collection.name] = collection_record(collection)
            for field in collection.fields.values():
                place = collection.name, field.name
                found[FIELDS, collection.name, renamed.get(place, field.name)] = field
    for relation in catalogue.relations:
        if not is_system(relation.many_collection):
            place = relation.many_collection, relation.many_field
            found[RELATIONS, relation.many_collection, renamed.get(place, relation.many_field)] = relation
    return found


def _late_indexes(transaction: Transaction, catalogue: Catalogue) -> Sources:
    """Return the fields of large tables that get an index after the commit, as the answer has them."""
    late: Sources = {}
    for collection, name in coming(transaction):
        field = catalogue.collections[collection].fields[name]
        late[FIELDS, collection, name] = with_index(field)
    return late


def _permissions(transaction: Transaction, catalogue: Catalogue) -> Sources:
    """Return all permissions: a change of the structure may take any of them along, or rewrite its rules."""
    return _stored(transaction, catalogue.collections[PERMISSIONS], TRUE)


def _going_along(transaction: Transaction, catalogue: Catalogue, dropped: str) -> Sources:
    """Return the presets and shares of a collection that is dropped."""
    condition = fill("t0.collection = {0}", param(dropped, "text"))
    sources: Sources = {}
    for name in GOES_ALONG:
        sources |= _stored(transaction, catalogue.collections[name], condition)
    return sources


def _stored(transaction: Transaction, collection: Collection, condition: Fragment) -> Sources:
    """Return rows of a system collection that say of which collection they speak."""
    shape = "SELECT t0.id::text, t0.collection, {0}::text FROM {1} AS t0 WHERE {2}"
    rows = transaction.run(fill(shape, whole_row(collection), text(quoted(collection.name)), condition))
    return {(collection.name, of, key): _object(content) for key, of, content in rows}


def _object(content: str) -> Record:
    record: Any = jsontext.stored(content)
    return dict(record)


def _act(place: Place, before: Sources, after: Sources) -> Act:
    return Act(place, _record(before.get(place)), _record(after.get(place)))


def _record(source: Source | None) -> Record | None:
    match source:
        case Field():
            return _without_secret(source, field_record(source))
        case Relation():
            return relation_record(source)
        case _:
            return source


def _without_secret(field: Field, record: Record) -> Record:
    """The default of a secret is one itself."""
    schema = record["schema"]
    if not field.secret or not isinstance(schema, dict) or schema["default_value"] is None:
        return record
    return {**record, "schema": {**schema, "default_value": MASK}}


def _members(before: object, after: object) -> object:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def _note(transaction: Transaction, who: Author, acts: Sequence[tuple[Act, int | None]]) -> list[int | None]:
    """Write acts down, each with the revision that it is part of, and return their own revisions."""
    if not acts:
        return []
    columns = (
        array([act.action for act, _ in acts]),
        array([act.place[0] for act, _ in acts]),
        array([act.item for act, _ in acts]),
        array([_json(act.data) for act, _ in acts]),
        array([_json(act.delta) if act.data else None for act, _ in acts]),
        array([None if parent is None else str(parent) for _, parent in acts]),
    )
    rows = transaction.execute(statement("note_structure"), (*who, *columns))
    return [revision for (revision,) in rows]


def _json(record: Record | None) -> str | None:
    return None if record is None else jsontext.dumps(record).decode()
