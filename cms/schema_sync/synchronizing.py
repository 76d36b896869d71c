"""Snapshots compared with the structure, and diffs applied to it (docs/environments.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cms.database.connections import Transaction
from cms.errors import invalid_payload
from cms.schema.meta_settings import NAMING_SETTINGS
from cms.schema.model import Catalogue
from cms.schema.records import Record
from cms.schema.references import FieldChange
from cms.schema.system import COLLECTIONS as COLLECTION_RECORDS
from cms.schema.system import FIELDS as FIELD_RECORDS
from cms.schema.system import RELATIONS as RELATION_RECORDS
from cms.schema_sync.changes import change_structure
from cms.schema_sync.comparison import RecordDiff, compare, of_section, rename_entry
from cms.schema_sync.content import read_content
from cms.schema_sync.content_writing import ContentWriter, write_content
from cms.schema_sync.diff_document import Diff, edited
from cms.schema_sync.document import Document, Rename, require_writable
from cms.schema_sync.feasibility import require_no_content_loss, require_possible
from cms.schema_sync.schema_snapshot import SchemaSnapshot, snapshot_of, with_content
from cms.schema_sync.sections import COLLECTIONS, FIELDS, RELATIONS, RecordName, records_by_name
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import ClientInfo, Identity
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.store.write_attempts import StructureChange, require_admin
from cms.structure.record_changes import RecordKey
from cms.structure.stored_references import STORED_REFERENCES
from cms.structure.structure_history import (
    NamedRecord,
    recording,
)

_TABLES = {
    COLLECTIONS: COLLECTION_RECORDS,
    FIELDS: FIELD_RECORDS,
    RELATIONS: RELATION_RECORDS,
}


def diff_snapshot(store: Store, identity: Identity, document: Document) -> Record | None:
    """Return `{hash, diff}`, which leads from the structure to a snapshot; None for equal ones.

    `ignored` is there for a snapshot with records and settings that have no counterpart here.
    """
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            answer = _diff(context, document=document)
    return answer


def _diff(context: RequestContext, *, document: Document) -> Record | None:
    require_admin(context.actor)
    catalogue = context.snapshot.catalogue
    include = document.snapshot.content.sections
    present = with_content(snapshot_of(catalogue), context, include=include)
    renames = due_renames(present, document.renames)
    diffs = compare(with_renames(present, renames, catalogue), document.snapshot)
    require_possible(diffs, document.snapshot, catalogue)
    sections = _entries(diffs, renames, present.sections)
    if not any(sections.values()):
        return None
    answer: Record = {"hash": present.hash, "diff": sections}
    if document.ignored:
        answer["ignored"] = list(document.ignored)
    # The diff is some levels deeper than the document.
    require_writable({"data": answer})
    return answer


def _entries(
    diffs: Sequence[RecordDiff], renames: Iterable[Rename], names: Iterable[str]
) -> dict[str, list[Record]]:
    """Return the entries of sections of these names, in the order of the records' names."""
    former: dict[RecordName, str] = {
        (rename.collection, rename.after): rename.before for rename in renames
    }
    sections: dict[str, list[Record]] = {}
    for section in names:
        # A field may have no other change than its new name.
        entries: dict[RecordName, Record] = {}
        if section == FIELDS:
            for (collection, field), name in former.items():
                entries[collection, field] = rename_entry(collection, field, former=name)
        for diff in of_section(diffs, section):
            entries[diff.name] = diff.as_entry(former.get(diff.name))
        sections[section] = [entries[name] for name in sorted(entries)]
    return sections


def apply_diff(
    store: Store,
    identity: Identity,
    diff: Diff,
    *,
    allows_loss: bool,
    idempotency: Idempotency | None = None,
) -> None:
    """Change the structure by a diff, whole or not at all; applying it again does nothing.

    Raises `Refused`: UNPROCESSABLE_CONTENT for what would delete data, unless `allows_loss`;
    INVALID_PAYLOAD for a diff that was made for another structure.
    """
    change: StructureChange[None] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        history = recording(store, attempt, identity.client, dropped=diff.collections)
        with attempt as context, history as named:
            named += _apply(
                attempt.begin_transaction(),
                context,
                store=store,
                client=identity.client,
                diff=diff,
                allows_loss=allows_loss,
            )


def _apply(
    transaction: Transaction,
    context: RequestContext,
    *,
    store: Store,
    client: ClientInfo,
    diff: Diff,
    allows_loss: bool,
) -> list[NamedRecord]:
    """Apply a diff, and return the records of the structure that it changes."""
    catalogue = context.snapshot.catalogue
    present = with_content(snapshot_of(catalogue), context, include=diff.include)
    renames = due_renames(present, diff.renames)
    renamed = with_renames(present, renames, catalogue)
    target = edited(renamed, diff)
    if compare(renamed, target) == [] and not renames:
        return []
    if diff.hash != present.hash:
        reason = "hash: the structure has changed since the diff was made; make it again"
        raise invalid_payload(reason, field="hash")
    change_structure(
        transaction, context, target.structure, renames=renames, allows_loss=allows_loss
    )
    if diff.include:
        context = context._replace(snapshot=load_snapshot(transaction))
        writer = ContentWriter(store, transaction, context, client)
        named = None
        # Records that the diff does not name follow a renamed field by themselves.
        if renames:
            named = {entry.name for entry in diff.entries}
        _change_content(writer, target.content, only=named, allows_loss=allows_loss)
    return _named_records(compare(renamed.structure, target.structure), renames)


def _change_content(
    writer: ContentWriter,
    target: SchemaSnapshot,
    *,
    only: set[RecordName] | None,
    allows_loss: bool,
) -> None:
    """Write content until it is that of the target; `only` names the records to write."""
    # Read only now: changes of the structure have changed permissions already.
    context = writer.context
    present = read_content(target.sections, context.fetch, context.snapshot.catalogue)
    diffs = compare(SchemaSnapshot(present), target)
    if only is not None:
        diffs = [diff for diff in diffs if diff.name in only]
    if not allows_loss:
        require_no_content_loss(diffs)
    write_content(writer, diffs)


def _named_records(diffs: Iterable[RecordDiff], renames: Iterable[Rename]) -> list[NamedRecord]:
    named = {}
    for diff in diffs:
        record_key = RecordKey(_TABLES[diff.section], *diff.name)
        named[record_key] = NamedRecord(record_key)
    # The history of a renamed field goes on under its new name.
    for rename in renames:
        record_key = RecordKey(FIELD_RECORDS, rename.collection, rename.after)
        named[record_key] = NamedRecord(record_key, rename.before)
    return list(named.values())


# Renamed fields


def due_renames(snapshot: SchemaSnapshot, renames: Iterable[Rename]) -> list[Rename]:
    """Return the renames that a structure lacks, in an order in which each new name is free.

    One whose former name is gone, or whose new name is there, was done before.
    """
    names = set(snapshot.sections[FIELDS])
    due: list[Rename] = []
    waiting = sorted(renames)
    # A rename frees a name that another one may need: `b` to `c` has to come before `a` to `b`.
    while True:
        possible = (each for each in waiting if _is_possible(each, names))
        rename = next(possible, None)
        if rename is None:
            return due
        waiting.remove(rename)
        names.remove((rename.collection, rename.before))
        due.append(rename)


def _is_possible(rename: Rename, names: set[RecordName]) -> bool:
    collection, before, after = rename
    return (collection, before) in names and (collection, after) not in names


def with_renames(
    snapshot: SchemaSnapshot, renames: Iterable[Rename], catalogue: Catalogue
) -> SchemaSnapshot:
    """Return the snapshot of a structure as it is after renames, in their order."""
    for rename in renames:
        change = FieldChange(catalogue, rename.collection, rename.before, rename.after)
        sections = dict(snapshot.sections)
        for section, records in snapshot.structure.sections.items():
            renamed = [_renamed(section, record, change) for record in records.values()]
            sections[section] = records_by_name(section, renamed)
        snapshot = SchemaSnapshot(sections)
    return snapshot


def _renamed(section: str, record: Record, change: FieldChange) -> Record:
    result = dict(record)
    if change.concerns(str(record["collection"]), str(record.get("field"))):
        result["field"] = change.after
    meta = record["meta"]
    if isinstance(meta, Mapping):
        result["meta"] = _renamed_in_meta(section, record, meta, change)
    return result


def _renamed_in_meta(
    section: str, record: Record, meta: Mapping[str, object], change: FieldChange
) -> Record:
    result = dict(meta)
    collection = str(record["collection"])
    for key in NAMING_SETTINGS[_TABLES[section]]:
        if change.concerns(collection, str(meta[key])):
            result[key] = change.after
    for reference in STORED_REFERENCES:
        if reference.table == _TABLES[section]:
            key = reference.column
            field = record.get("field")
            described_field = field if isinstance(field, str) else None
            result[key] = reference.applied(meta[key], collection, described_field, change)
    # The list at the other side of a relation is a field there.
    if section == RELATIONS and change.concerns(
        str(record["related_collection"]), str(meta["one_field"])
    ):
        result["one_field"] = change.after
    return result
