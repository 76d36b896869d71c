"""Changes of collections: DDL and the records of collections, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, at_index, collect_problems, invalid_payload
from cms.schema import ddl
from cms.schema.definitions import CollectionDefinition, parse_collection
from cms.schema.meta_settings import (
    COLLECTION_META,
    COLLECTION_SCHEMA,
    NAMING_SETTINGS,
    MetaSettings,
    mismatched_keys,
    parse_settings,
    unknown_keys,
)
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.reasons import NO_SUCH_FIELD
from cms.schema.records import Record, collection_record
from cms.schema.system import COLLECTIONS
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.store.write_attempts import StructureChange
from cms.structure import metadata
from cms.structure.duplication_fields import check_duplication_fields, prune_duplication_fields
from cms.structure.fields import add_index_and_comment, insert_field_record, require_extension
from cms.structure.index_requests import interrupt_builds, update_indexes
from cms.structure.index_states import with_search_states
from cms.structure.lookup import (
    RecordPatch,
    check_patches,
    require_alterable,
    require_collection,
    require_table,
)
from cms.structure.record_changes import RecordKey
from cms.structure.reference_names import follow_references
from cms.structure.search_indexes import missing_search_indexes
from cms.structure.structure_history import (
    NamedRecord,
    recording,
)

_NOTHING: Mapping[str, object] = MappingProxyType({})

_RECORD_KEYS = ("collection", "meta", "schema")
"""The keys of a change; a new collection has its fields as well."""


def create_collections(
    store: Store,
    identity: Identity,
    payloads: Sequence[Mapping[str, object]],
    *,
    idempotency: Idempotency | None = None,
) -> list[Record]:
    """Create tables, or folders without one, with their fields; return their records."""
    change: StructureChange[list[Record]] = store.structure_change(
        identity, idempotency=idempotency
    )
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            change.answer = _create_all(transaction, context, payloads=payloads)
            named += [_named(record["collection"]) for record in change.answer]
    return change.answer


def create_collection(
    store: Store,
    identity: Identity,
    payload: Mapping[str, object],
    *,
    idempotency: Idempotency | None = None,
) -> Record:
    """Create one collection as `create_collections` does, and return its record."""
    change: StructureChange[Record] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            [change.answer] = _create_all(transaction, context, payloads=[payload])
            named.append(_named(change.answer["collection"]))
    return change.answer


def _create_all(
    transaction: Transaction,
    context: RequestContext,
    *,
    payloads: Sequence[Mapping[str, object]],
) -> list[Record]:
    names = []
    for index, payload in enumerate(payloads):
        try:
            names.append(add(transaction, context, payload=payload))
        except Refused as refused:
            raise Refused(at_index(refused.problems, index, count=len(payloads))) from None
        # A later one may be in a group that is made here.
        context = context._replace(snapshot=load_snapshot(transaction))
    after = context.snapshot.catalogue
    for name in names:
        finish(transaction, after, name)
    return _records(transaction, after, names)


def add(transaction: Transaction, context: RequestContext, *, payload: Mapping[str, object]) -> str:
    """Add a collection and return its name; `finish` has to follow.

    Of several collections, all may be added before the structure is loaded again.
    """
    catalogue = context.snapshot.catalogue
    definition = parse_collection(payload)
    _check_new(definition, catalogue)
    # Another program may have dropped a table of this name, whose records are still there.
    metadata.delete_collection_records(transaction, definition.name, catalogue=catalogue)
    # A collection without a schema is a folder for others.
    if definition.schema is not None:
        _create_table(transaction, definition)
    if definition.meta is not None:
        _save(transaction, definition.name, definition.meta, catalogue)
    for field in definition.fields:
        insert_field_record(transaction, definition.name, field)
    return definition.name


def finish(
    transaction: Transaction,
    after: Catalogue,
    name: str,
    *,
    before: Collection | None = None,
) -> None:
    """Check the settings of a collection on the new structure, and adjust its indexes.

    Its settings may name fields that the same call creates.
    """
    # Another program may have dropped its table meanwhile.
    collection = require_collection(after, name)
    metadata.check_archive(collection, before=before)
    check_duplication_fields(after, collection, before=before)
    update_indexes(transaction, collection, after.extensions)


def update_collection(
    store: Store,
    identity: Identity,
    patch: RecordPatch,
    *,
    idempotency: Idempotency | None = None,
) -> Record:
    """Change the record of a collection and return it."""
    change: StructureChange[Record] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            named.append(_named(patch.name))
            [change.answer] = update_all(transaction, context, patches=[patch])
    return change.answer


def update_collections(
    store: Store,
    identity: Identity,
    patches: Sequence[RecordPatch],
    *,
    idempotency: Idempotency | None = None,
) -> list[Record]:
    """Change the records of collections, all or none; return them in order."""
    change: StructureChange[list[Record]] = store.structure_change(
        identity, idempotency=idempotency
    )
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            named += [_named(patch.name) for patch in patches]
            change.answer = update_all(transaction, context, patches=patches)
    return change.answer


def update_all(
    transaction: Transaction, context: RequestContext, *, patches: Sequence[RecordPatch]
) -> list[Record]:
    """Do `update_collections` within a change of structure."""
    catalogue = context.snapshot.catalogue
    names = [patch.name for patch in patches]
    check_patches(patches, partial(_problems_of_patch, catalogue=catalogue))
    for name, payload in patches:
        _update(transaction, require_alterable(catalogue, name), payload, catalogue)
    after = load_snapshot(transaction).catalogue
    # Only all changes together show whether a group is inside itself.
    _refuse_cycles(after, names)
    for name in names:
        finish(transaction, after, name, before=catalogue.collections[name])
    return _records(transaction, after, names)


def _records(transaction: Transaction, after: Catalogue, names: Sequence[str]) -> list[Record]:
    """Return the records of collections that have their indexes now, or a job for these."""
    collections = [after.collections[name] for name in names]
    if any(missing_search_indexes(one, after.extensions) for one in collections):
        # Loaded before `finish` has made them.
        after = load_snapshot(transaction).catalogue
    records = list(map(collection_record, collections))
    # A build is a job of this transaction, which its own statements see.
    return with_search_states(records, after, transaction.execute)


def delete_collection(
    store: Store, identity: Identity, name: str, *, idempotency: Idempotency | None = None
) -> None:
    """Drop a table with its items, its records, and every reference to it."""
    change: StructureChange[None] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        history = recording(store, attempt, identity.client, dropped=[name])
        with attempt as context, history as named:
            named.append(_named(name))
            delete(attempt.begin_transaction(), context, name=name)


def delete(transaction: Transaction, context: RequestContext, *, name: str) -> None:
    """Do `delete_collection` within a change of structure."""
    remove(transaction, context, name=name)
    # Paths of other collections may have led through this one.
    prune_duplication_fields(transaction)


def remove(transaction: Transaction, context: RequestContext, *, name: str) -> None:
    """Remove a collection; `prune_duplication_fields` has to follow."""
    catalogue = context.snapshot.catalogue
    collection = require_alterable(catalogue, name)
    # Other programs may use a view, and no request could create it again.
    if collection.kind is Kind.VIEW:
        raise invalid_payload(f'"{name}" is a view; drop it in the database', collection=name)
    _drop(transaction, collection)
    metadata.delete_collection_records(transaction, name, catalogue=catalogue)
    follow_references(transaction, catalogue)


def _named(name: object) -> NamedRecord:
    return NamedRecord(RecordKey(COLLECTIONS, str(name)))


def _check_new(definition: CollectionDefinition, catalogue: Catalogue) -> None:
    problems: list[Problem] = []
    name = definition.name
    columns = {field.name for field in definition.fields if not field.is_alias}
    if name in catalogue.collections:
        reason = f'There is a collection "{name}" already'
        problems += invalid_payload(reason, field="collection", value=name).problems
    for field in definition.fields:
        collect_problems(problems, partial(require_extension, field.type, catalogue))
    # All problems come in one answer, so each check runs whether the others found any or not.
    meta = definition.meta or MetaSettings()
    collect_problems(problems, lambda: _check_named_fields(meta, columns))
    collect_problems(problems, lambda: _check_group(meta.get("group"), catalogue))
    if problems:
        raise Refused(problems)


def _check_named_fields(
    meta: MetaSettings, columns: set[str], *, former: Mapping[str, object] = _NOTHING
) -> None:
    """Refuse sort and archive fields that do not exist.

    One that has not changed may stay: a client sends whole records back.
    """
    problems = []
    for key in NAMING_SETTINGS[COLLECTIONS]:
        field = meta.get(key)
        if not field or field in columns or field == former.get(key):
            continue
        message = f"Invalid payload. meta.{key}: {NO_SUCH_FIELD}."
        extensions = {"reason": NO_SUCH_FIELD, "field": f"meta.{key}", "value": field}
        problems.append(Problem("INVALID_PAYLOAD", message, extensions))
    if problems:
        raise Refused(problems)


def _create_table(transaction: Transaction, definition: CollectionDefinition) -> None:
    transaction.execute_ddl(ddl.create_table(definition.name, definition.fields))
    # CREATE TABLE takes no comment of a table.
    if definition.schema and definition.schema.get("comment"):
        transaction.execute_ddl(ddl.comment_on_table(definition.name, definition.schema["comment"]))
    for field in definition.fields:
        add_index_and_comment(transaction, definition.name, field)


def _problems_of_patch(patch: RecordPatch, *, catalogue: Catalogue) -> list[Problem]:
    collection = require_alterable(catalogue, patch.name)
    payload = patch.payload
    problems = unknown_keys(payload, _RECORD_KEYS)
    problems += mismatched_keys(payload, {"collection": (collection.name,)})
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", problems)
    parse_settings(payload.get("schema"), COLLECTION_SCHEMA, "schema", problems)
    columns = {field.name for field in collection.columns}
    collect_problems(
        problems, lambda: _check_named_fields(meta, columns, former=collection.meta or _NOTHING)
    )
    collect_problems(problems, lambda: _check_group(meta.get("group"), catalogue))
    return problems


def _update(
    transaction: Transaction,
    collection: Collection,
    payload: Mapping[str, object],
    catalogue: Catalogue,
) -> None:
    # `check_patches` has refused all problems, so that there are none to gather here.
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", [])
    schema = parse_settings(payload.get("schema"), COLLECTION_SCHEMA, "schema", [])
    if schema.get("comment", collection.comment) != collection.comment:
        require_table(collection, "comment")
        interrupt_builds(transaction, collection.name)
        transaction.execute_ddl(ddl.comment_on_table(collection.name, schema["comment"]))
    # GET answers null for a table without a record: sending that back creates none.
    if payload.get("meta") is not None:
        _save(transaction, collection.name, meta, catalogue)


def _save(transaction: Transaction, name: str, meta: MetaSettings, catalogue: Catalogue) -> None:
    group = meta.get("group")
    # A table that nobody has configured has no record that the group could refer to.
    if group is not None:
        # First the record of the group, to which that of the collection refers.
        _ensure_group(transaction, str(group), catalogue)
    metadata.save_collection_record(transaction, name, meta)


def _ensure_group(transaction: Transaction, name: str, catalogue: Catalogue) -> None:
    """Insert the record of a group if it has none; any collection but the system's is a group."""
    _check_group(name, catalogue)
    # Without changes a record that is there stays as it is.
    metadata.save_collection_record(transaction, name, {})


def _check_group(name: object, catalogue: Catalogue) -> None:
    if name is None:
        return
    group = catalogue.collections.get(str(name))
    if group is None or group.is_system:
        reason = f'meta.group: there is no collection "{name}"'
        raise invalid_payload(reason, field="meta.group", value=name)


def _refuse_cycles(catalogue: Catalogue, names: Iterable[str]) -> None:
    """Refuse collections that are inside themselves when all changes are made."""
    for name in names:
        # Other groups may be a cycle already, which must not make this loop endless.
        visited = {name}
        group = require_collection(catalogue, name).group
        while group:
            if group in visited:
                reason = f'meta.group: "{name}" would be inside itself'
                raise invalid_payload(reason, field="meta.group", value=name)
            visited.add(group)
            group = catalogue.collections[group].group


def _drop(transaction: Transaction, collection: Collection) -> None:
    """Drop a table, and before it each foreign key to it: CASCADE would drop views as well."""
    if collection.kind is not Kind.TABLE:
        return
    interrupt_builds(transaction, collection.name)
    for table, constraint in transaction.execute(statement("foreign_keys_to"), (collection.name,)):
        interrupt_builds(transaction, str(table))
        transaction.execute_ddl(ddl.drop_constraint(table, constraint))
    transaction.execute_ddl(ddl.drop_table(collection.name))
