"""The history of the structure: records of collections, fields and relations as a change finds and as it leaves them.

The records before and after are compared, whatever changed them: a field that goes takes relations along, a junction
brings fields, and permissions follow. What is not named by the call is part of what is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cms import jsontext
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.fragment import Fragment, fill, param, quoted, text
from cms.items.write.rows import author
from cms.query.sql.arrays import array
from cms.query.sql.expressions import TRUE
from cms.query.sql.history import whole_row
from cms.schema.build import is_system
from cms.schema.model import Catalogue, Collection, Field, Relation
from cms.schema.records import Record, collection_record, field_record, relation_record
from cms.schema.types import MASK
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.structure.indexes import pending_indexes, with_index

COLLECTIONS, FIELDS, RELATIONS = "system_collections", "system_fields", "system_relations"
PERMISSIONS = "system_permissions"
GOES_ALONG = ("system_presets", "system_shares")
"""What speaks of a collection, and goes with it."""

RecordKey = tuple[str, ...]
"""Where a record is: its system collection, the collection that it is of, and in that the field, or its own key."""

RecordSource = Record | Field | Relation
RecordSources = dict[RecordKey, RecordSource]

Author = tuple[str | None, ...]
"""User, address, user agent and origin."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamedRecord:
    """A record that a call is about; `former` is the name that its field had before."""

    record_key: RecordKey
    former: str | None = None


@dataclass(frozen=True, slots=True)
class RecordChange:
    """What has been done to a record: as it was, and as it is; None where it was not there, or is no more."""

    record_key: RecordKey
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
        return (
            self.record_key[-1]
            if self.record_key[0] in (PERMISSIONS, *GOES_ALONG)
            else ".".join(self.record_key[1:])
        )

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


def change_structure(
    store: Store,
    identity: Identity,
    work: Callable[[Transaction, RequestContext], T],
    named: Callable[[T], Iterable[NamedRecord]],
    *,
    dropped: str | None = None,
    idempotency: Idempotency | None = None,
) -> T:
    """Change the structure as `Store.run_structure_change` does, and write down what has become of it.

    `named` returns, of what the work returned, the records that the call is about; `dropped` is a collection that goes.
    """

    def recorded(transaction: Transaction, context: RequestContext) -> T:
        loads_stored = _permissions(transaction, context.snapshot.catalogue)
        if dropped and dropped in context.snapshot.catalogue.collections:
            loads_stored |= _going_along(transaction, context.snapshot.catalogue, dropped)
        result = work(transaction, context)
        records = list(dict.fromkeys(named(result)))
        renamed = _renamed(transaction, records)
        before = _records(context.snapshot.catalogue, renamed) | loads_stored
        catalogue = load_snapshot(transaction).catalogue
        after = (
            _records(catalogue, {})
            | _deferred_indexes(transaction, catalogue)
            | _permissions(transaction, catalogue)
        )
        _mask_defaults(transaction, before, after)
        _record_changes(transaction, author(context, identity.client), records, before, after)
        return result

    return store.run_structure_change(identity, recorded, idempotency=idempotency)


def _renamed(transaction: Transaction, named: Iterable[NamedRecord]) -> dict[tuple[str, str], str]:
    """Return the new names of fields by their places, once the history has followed them."""
    renamed = {
        (one.record_key[1], one.former): one.record_key[2]
        for one in named
        if one.former and one.former != one.record_key[2]
    }
    for (collection, former), name in renamed.items():
        transaction.execute(
            statement("rename_in_history"), (f"{collection}.{former}", f"{collection}.{name}")
        )
    return renamed


def _mask_defaults(transaction: Transaction, before: RecordSources, after: RecordSources) -> None:
    """Let older revisions of fields that have become secrets tell their defaults no longer."""
    for record_key, field in after.items():
        former = before.get(record_key)
        if (
            isinstance(field, Field)
            and field.is_secret
            and isinstance(former, Field)
            and not former.is_secret
        ):
            transaction.execute(
                statement("mask_default_in_history"), (".".join(record_key[1:]), MASK)
            )


def _record_changes(
    transaction: Transaction,
    who: Author,
    named: list[NamedRecord],
    before: RecordSources,
    after: RecordSources,
) -> None:
    roots = [_record_change(one.record_key, before, after) for one in named]
    written = _insert_history(transaction, who, [(act, None) for act in roots])
    parents = {act.record_key[1]: revision for act, revision in zip(roots, written, strict=True)}
    first = next((revision for revision in written if revision is not None), None)
    known = {one.record_key for one in named}
    places = sorted(
        record_key for record_key in before.keys() | after.keys() if record_key not in known
    )
    others = [
        _record_change(record_key, before, after)
        for record_key in places
        if before.get(record_key) != after.get(record_key)
    ]
    changed = [act for act in others if act.data is not None]
    _insert_history(
        transaction, who, [(act, parents.get(act.record_key[1]) or first) for act in changed]
    )


def _records(catalogue: Catalogue, renamed: Mapping[tuple[str, str], str]) -> RecordSources:
    """Return everything that a record is made of, of fields that were renamed at their new places."""
    found: RecordSources = {}
    for collection in catalogue.collections.values():
        if not collection.system:
            found[COLLECTIONS, collection.name] = collection_record(collection)
            for field in collection.fields.values():
                record_key = collection.name, field.name
                found[FIELDS, collection.name, renamed.get(record_key, field.name)] = field
    for relation in catalogue.relations:
        if not is_system(relation.many_collection):
            record_key = relation.many_collection, relation.many_field
            found[
                RELATIONS, relation.many_collection, renamed.get(record_key, relation.many_field)
            ] = relation
    return found


def _deferred_indexes(transaction: Transaction, catalogue: Catalogue) -> RecordSources:
    """Return the fields of large tables that get an index after the commit, as the answer has them."""
    late: RecordSources = {}
    for collection, name in pending_indexes(transaction):
        field = catalogue.collections[collection].fields[name]
        late[FIELDS, collection, name] = with_index(field)
    return late


def _permissions(transaction: Transaction, catalogue: Catalogue) -> RecordSources:
    """Return all permissions: a change of the structure may take any of them along, or rewrite its rules."""
    return _stored(transaction, catalogue.collections[PERMISSIONS], TRUE)


def _going_along(transaction: Transaction, catalogue: Catalogue, dropped: str) -> RecordSources:
    """Return the presets and shares of a collection that is dropped."""
    condition = fill("t0.collection = {0}", param(dropped, "text"))
    sources: RecordSources = {}
    for name in GOES_ALONG:
        sources |= _stored(transaction, catalogue.collections[name], condition)
    return sources


def _stored(transaction: Transaction, collection: Collection, condition: Fragment) -> RecordSources:
    """Return rows of a system collection that say of which collection they speak."""
    shape = "SELECT t0.id::text, t0.collection, {0}::text FROM {1} AS t0 WHERE {2}"
    rows = transaction.run(
        fill(shape, whole_row(collection), text(quoted(collection.name)), condition)
    )
    return {(collection.name, of, key): _object(content) for key, of, content in rows}


def _object(content: str) -> Record:
    record: Any = jsontext.loads_stored(content)
    return dict(record)


def _record_change(
    record_key: RecordKey, before: RecordSources, after: RecordSources
) -> RecordChange:
    return RecordChange(record_key, _record(before.get(record_key)), _record(after.get(record_key)))


def _record(source: RecordSource | None) -> Record | None:
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
    if not field.is_secret or not isinstance(schema, dict) or schema["default_value"] is None:
        return record
    return {**record, "schema": {**schema, "default_value": MASK}}


def _members(before: object, after: object) -> object:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    return {
        name: value for name, value in after.items() if name not in before or before[name] != value
    }


def _insert_history(
    transaction: Transaction, who: Author, acts: Sequence[tuple[RecordChange, int | None]]
) -> list[int | None]:
    """Write acts down, each with the revision that it is part of, and return their own revisions."""
    if not acts:
        return []
    columns = (
        array([act.action for act, _ in acts]),
        array([act.record_key[0] for act, _ in acts]),
        array([act.item for act, _ in acts]),
        array([_json(act.data) for act, _ in acts]),
        array([_json(act.delta) if act.data else None for act, _ in acts]),
        array([None if parent is None else str(parent) for _, parent in acts]),
    )
    rows = transaction.execute(statement("note_structure"), (*who, *columns))
    return [revision for (revision,) in rows]


def _json(record: Record | None) -> str | None:
    return None if record is None else jsontext.dumps(record).decode()
