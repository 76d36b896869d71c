"""The history of the structure: records of collections, fields and relations, before and after.

All records are compared, because a change concerns more records than the call names: deleting a
field deletes its relations, creating a junction creates fields, and permissions change. Revisions
of records that the call does not name have a revision of a named record as their parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cms import jsontext
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.fragment import Fragment, fill, param, quoted, text
from cms.items.write.transaction.event_runs import queue_runs_after
from cms.query.sql.arguments import array
from cms.query.sql.expressions import TRUE
from cms.query.sql.write_history import whole_row
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.records import Record
from cms.schema.system import (
    COLLECTIONS,
    FIELDS,
    PERMISSIONS,
    RELATIONS,
    is_system,
)
from cms.store.context import RequestContext
from cms.store.identity import Author, ClientInfo
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.store.write_attempts import WriteAttempt
from cms.structure.record_changes import (
    DEPENDENTS,
    ChangeEntry,
    RecordChange,
    RecordKey,
    RecordSource,
    RecordSources,
    insert_history,
    record_change,
)
from cms.text_shapes import MASK


@dataclass(frozen=True, slots=True)
class NamedRecord:
    """A record that a call names; `former` is the name that its field had before."""

    record_key: RecordKey
    former: str | None = None


@contextmanager
def recording(
    store: Store,
    attempt: WriteAttempt,
    client: ClientInfo,
    *,
    dropped: Iterable[str] = (),
) -> Iterator[list[NamedRecord]]:
    """Record in the history what the block changes of the structure, in the attempt's transaction.

    The block adds the records that the call names to the list; `dropped` are the collections that
    it may delete.
    """
    context = attempt.context
    assert context
    transaction = attempt.begin_transaction()
    old_catalogue = context.snapshot.catalogue
    # Rows of tables have to be read before the change; the catalogue is kept as it was.
    stored = _permissions(transaction, old_catalogue)
    existing = frozenset(dropped) & old_catalogue.collections.keys()
    if existing:
        stored |= _dependents(transaction, old_catalogue, existing)
    listed: list[NamedRecord] = []
    yield listed
    # A call may name a record twice, which has one revision all the same.
    named = list(dict.fromkeys(listed))
    # Before the records are compared, which then have the new names on both sides.
    renamed = _rename_in_history(transaction, named)
    snapshot = load_snapshot(transaction)
    catalogue = snapshot.catalogue
    unchanged = _unchanged(old_catalogue, catalogue)
    unchanged -= {record_key.collection for record_key in _keys_of(named)}
    # The snapshot of the context is older than the change, and so still has all records.
    before = _records(old_catalogue, renamed, unchanged) | stored
    # First of all steps: others change the structure again.
    transaction.after_commit.insert(0, lambda _: store.snapshots.adopt(snapshot))
    after = _records(catalogue, {}, unchanged)
    after |= _permissions(transaction, catalogue)
    _mask_defaults(transaction, before, after)
    author = client.author(context.actor.user)
    changes = _record_changes(transaction, author, named, before, after)
    _queue_runs(transaction, context, client, changes)


def _queue_runs(
    transaction: Transaction,
    context: RequestContext,
    client: ClientInfo,
    changes: Iterable[RecordChange],
) -> None:
    """Queue the runs of flows that wait for changes of structure."""
    for change in changes:
        table = change.record_key.table
        item = change.record_key.item
        if table not in (COLLECTIONS, FIELDS, RELATIONS) or change.data is None:
            continue
        data: dict[str, object] = {"keys": [item], "payload": change.delta}
        if change.action == "create":
            data = {"key": item, "payload": change.data}
        elif change.action == "delete":
            data["payload"] = [item]
        queue_runs_after(
            transaction.execute,
            context,
            client,
            context.snapshot.catalogue.collections[table],
            verb=change.action,
            data=data,
        )


def _rename_in_history(
    transaction: Transaction, named: Iterable[NamedRecord]
) -> dict[tuple[str, str], str]:
    """Rename fields in their history, and return the new names by collection and former name."""
    renamed = {}
    for record in named:
        record_key = record.record_key
        if record.former and record.former != record_key.name:
            renamed[record_key.collection, record.former] = record_key.name
    # The history of a record is found by its name, which is its key.
    for (collection, former), name in renamed.items():
        items = (f"{collection}.{former}", f"{collection}.{name}")
        transaction.execute(statement("rename_in_history"), items)
    return renamed


def _mask_defaults(transaction: Transaction, before: RecordSources, after: RecordSources) -> None:
    """Mask the defaults in older revisions of fields that have become secrets."""
    for record_key, field in after.items():
        former = before.get(record_key)
        # New fields have no older revisions.
        if not isinstance(field, Field) or not isinstance(former, Field):
            continue
        if field.is_secret and not former.is_secret:
            transaction.execute(statement("mask_default_in_history"), (record_key.item, MASK))


def _record_changes(
    transaction: Transaction,
    author: Author,
    named: list[NamedRecord],
    before: RecordSources,
    after: RecordSources,
) -> list[RecordChange]:
    """Record changes, and return them."""
    # First the named records: their revisions are the parents of all others.
    named_keys = _keys_of(named)
    roots: list[ChangeEntry] = []
    for record_key in named_keys:
        roots.append(ChangeEntry(record_change(record_key, before, after)))
    revisions = insert_history(transaction, author, roots)
    parents: dict[str, int | None] = {}
    # The parent of changes in collections that the call does not name.
    first: int | None = None
    for record_key, revision in zip(named_keys, revisions, strict=True):
        parents[record_key.collection] = revision
        if first is None:
            first = revision
    entries: list[ChangeEntry] = []
    other_keys = (before.keys() | after.keys()).difference(named_keys)
    changed: list[RecordKey] = []
    for record_key in other_keys:
        # The sources are compared before records are made of them, which takes longer.
        if not _is_same(before.get(record_key), after.get(record_key)):
            changed.append(record_key)
    # Sorted, so that the same call always leaves the same history.
    for record_key in sorted(changed):
        change = record_change(record_key, before, after)
        if change.data is not None:
            parent = parents.get(record_key.collection) or first
            entries.append(ChangeEntry(change, parent))
    insert_history(transaction, author, entries)
    return [entry.change for entry in (*roots, *entries)]


def _keys_of(named: Iterable[NamedRecord]) -> list[RecordKey]:
    return [record.record_key for record in named]


def _is_same(former: RecordSource | None, present: RecordSource | None) -> bool:
    # Most are the same object, because a catalogue is loaded in parts: comparing takes longer.
    return former is present or former == present


def _unchanged(before: Catalogue, after: Catalogue) -> set[str]:
    """Return the collections that are the same value in both, as those not loaded again are."""
    names: set[str] = set()
    for name, collection in after.collections.items():
        if before.collections.get(name) is collection:
            names.add(name)
    return names


def _records(
    catalogue: Catalogue, renamed: Mapping[tuple[str, str], str], left_out: Set[str]
) -> RecordSources:
    """Return the sources of records, apart from collections and fields that are left out.

    Renamed fields have their new names as keys.
    """
    sources: RecordSources = {}
    for collection in catalogue.collections.values():
        # Nobody changes the structure of system collections.
        if not collection.is_system and collection.name not in left_out:
            record_key = RecordKey(COLLECTIONS, collection.name)
            sources[record_key] = collection
            for field in collection.fields.values():
                name = renamed.get((collection.name, field.name), field.name)
                sources[RecordKey(FIELDS, collection.name, name)] = field
    for relation in catalogue.relations:
        many_collection = relation.many_collection
        if not is_system(many_collection):
            name = renamed.get((many_collection, relation.many_field), relation.many_field)
            sources[RecordKey(RELATIONS, many_collection, name)] = relation
    return sources


def _permissions(transaction: Transaction, catalogue: Catalogue) -> RecordSources:
    """Return all permissions: a change of structure may delete any of them, or change its rules."""
    return _stored(transaction, catalogue.collections[PERMISSIONS], TRUE)


def _dependents(
    transaction: Transaction, catalogue: Catalogue, dropped: Iterable[str]
) -> RecordSources:
    """Return the presets and shares of collections that are dropped."""
    condition = fill("t0.collection = ANY({0})", param(array(sorted(dropped)), "text[]"))
    sources: RecordSources = {}
    for name in DEPENDENTS:
        sources |= _stored(transaction, catalogue.collections[name], condition)
    return sources


def _stored(transaction: Transaction, collection: Collection, condition: Fragment) -> RecordSources:
    """Return rows of a system collection, each with the collection that it is about."""
    # Whole rows, in the form in which writes of items record them.
    shape = "SELECT t0.id::text, t0.collection, {0}::text FROM {1} AS t0 WHERE {2}"
    rows = transaction.run(
        fill(shape, whole_row(collection), text(quoted(collection.name)), condition)
    )
    sources: RecordSources = {}
    for key, subject, content in rows:
        sources[RecordKey(collection.name, subject, key)] = _object(content)
    return sources


def _object(content: str) -> Record:
    record: Any = jsontext.loads_stored(content)
    return dict(record)
