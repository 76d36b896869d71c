"""Changes of fields: columns by DDL, aliases, and the records of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from cms.database.connections import Transaction
from cms.database.error_mapping import reporting_nulls
from cms.errors import Problem, Refused, collect_problems, invalid_payload
from cms.schema import ddl
from cms.schema.definitions import FieldDefinition, parse_field
from cms.schema.meta_settings import mismatched_keys
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.schema.names import duplicate_name_problem
from cms.schema.records import Record, field_record
from cms.schema.system import FIELDS
from cms.schema.types.field_type import FieldType
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.store.write_attempts import StructureChange
from cms.structure import metadata
from cms.structure.alterations import (
    alter,
    problems_of_change,
    rename_field,
)
from cms.structure.column_changes import check_text_is_json
from cms.structure.duplication_fields import prune_duplication_fields
from cms.structure.index_requests import (
    add_index,
    interrupt_builds,
    request_unique,
    update_indexes,
)
from cms.structure.index_states import with_field_states
from cms.structure.indexes import is_large
from cms.structure.lookup import (
    RecordPatch,
    check_patches,
    require_alterable,
    require_collection,
    require_field,
    require_table,
)
from cms.structure.record_changes import RecordKey
from cms.structure.reference_names import follow_references
from cms.structure.structure_history import (
    NamedRecord,
    recording,
)


def create_field(
    store: Store,
    identity: Identity,
    collection: str,
    payload: Mapping[str, object],
    *,
    idempotency: Idempotency | None = None,
) -> Record:
    """Add a column, or an alias without one; return its record."""
    change: StructureChange[Record] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            record = create(transaction, context, collection=collection, payload=payload)
            named.append(_named(collection, record["field"]))
            change.answer = record
    return change.answer


def create(
    transaction: Transaction,
    context: RequestContext,
    *,
    collection: str,
    payload: Mapping[str, object],
) -> Record:
    """Do `create_field` within a change of structure."""
    catalogue = context.snapshot.catalogue
    owner = require_alterable(catalogue, collection)
    definition = _parse_new(payload, owner, catalogue)
    name = definition.name
    if not definition.is_alias:
        # Another program may have dropped a column of this name, whose records are still there.
        metadata.delete_stale_field_records(transaction, collection, name, catalogue=catalogue)
        add_column(transaction, collection, definition)
    insert_field_record(transaction, collection, definition)
    return _finish_changes(transaction, [_FieldRename(name, name)], before=owner)[0]


def update_field(
    store: Store,
    identity: Identity,
    collection: str,
    patch: RecordPatch,
    *,
    idempotency: Idempotency | None = None,
) -> Record:
    """Change a field and return its record."""
    change: StructureChange[Record] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            records = update_all(transaction, context, collection=collection, patches=[patch])
            named += _names_of_updated(records, collection=collection, patches=[patch])
            change.answer = records[0]
    return change.answer


def update_fields(
    store: Store,
    identity: Identity,
    collection: str,
    patches: Sequence[RecordPatch],
    *,
    idempotency: Idempotency | None = None,
) -> list[Record]:
    """Change fields of a collection, all or none; return their records in order."""
    change: StructureChange[list[Record]] = store.structure_change(
        identity, idempotency=idempotency
    )
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            records = update_all(transaction, context, collection=collection, patches=patches)
            named += _names_of_updated(records, collection=collection, patches=patches)
            change.answer = records
    return change.answer


def update_all(
    transaction: Transaction,
    context: RequestContext,
    *,
    collection: str,
    patches: Sequence[RecordPatch],
) -> list[Record]:
    """Do `update_fields` within a change of structure."""
    catalogue = context.snapshot.catalogue
    owner = require_alterable(catalogue, collection)
    check_patches(patches, partial(_problems_of_patch, owner=owner))
    renames = []
    for name, payload in patches:
        new_name = _update(transaction, owner, require_field(owner, name), payload, catalogue)
        renames.append(_FieldRename(name, new_name))
    return _finish_changes(transaction, renames, before=owner)


def _names_of_updated(
    records: Sequence[Record], *, collection: str, patches: Sequence[RecordPatch]
) -> list[NamedRecord]:
    """Return the changed fields, each with the name that it had before."""
    names = []
    for record, patch in zip(records, patches, strict=True):
        # The history of a renamed field goes on under its new name.
        names.append(_named(collection, record["field"], former=patch.name))
    return names


def delete_field(
    store: Store,
    identity: Identity,
    collection: str,
    field: str,
    *,
    idempotency: Idempotency | None = None,
) -> None:
    """Drop a column with its data, its relations, and everything that names it."""
    change: StructureChange[None] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            named.append(_named(collection, field))
            delete(transaction, context, collection=collection, name=field)


def delete(
    transaction: Transaction, context: RequestContext, *, collection: str, name: str
) -> None:
    """Do `delete_field` within a change of structure."""
    remove(transaction, context, collection=collection, name=name)
    prune_duplication_fields(transaction)


def remove(
    transaction: Transaction, context: RequestContext, *, collection: str, name: str
) -> None:
    """Remove a field; `prune_duplication_fields` has to follow."""
    catalogue = context.snapshot.catalogue
    owner = require_alterable(catalogue, collection)
    field = require_field(owner, name)
    if name in owner.key_names:
        raise invalid_payload(
            "The primary key cannot be deleted", collection=collection, field=name
        )
    if field.parts:
        raise invalid_payload(
            f'"{name}" is a foreign key of several columns, and goes with it',
            collection=collection,
            field=name,
        )
    # An alias has nothing to drop.
    if field.column:
        require_table(owner, "columns")
        # Before the table is locked, as a long history takes long; and again, for what is written
        # meanwhile.
        metadata.delete_from_revisions(transaction, collection, name)
        interrupt_builds(transaction, collection)
        transaction.execute_ddl(ddl.drop_column(collection, name))
    # By the catalogue as it was: stored rules still name the field.
    metadata.delete_field_records(transaction, collection, name, catalogue=catalogue)
    follow_references(transaction, catalogue)


def _named(collection: str, field: object, *, former: str | None = None) -> NamedRecord:
    return NamedRecord(RecordKey(FIELDS, collection, str(field)), former)


def add_column(transaction: Transaction, collection: str, definition: FieldDefinition) -> None:
    """Add a column with its index and comment."""
    interrupt_builds(transaction, collection)
    is_unique_later = _is_unique_later(transaction, collection, definition)
    column = definition
    if is_unique_later:
        column = definition.without("is_unique")
    # Rows that exist hold null in the new column unless it has a default.
    with reporting_nulls(collection, definition.name):
        transaction.execute_ddl(ddl.add_column(collection, column))
    if is_unique_later:
        request_unique(transaction, collection, definition.name)
    add_index_and_comment(transaction, collection, definition)


def _is_unique_later(
    transaction: Transaction, collection: str, definition: FieldDefinition
) -> bool:
    """Tell whether a new column is made unique in the background."""
    schema = definition.schema
    if not schema.get("is_unique") or definition.is_key:
        return False
    # With a default, stored rows have equal values, or all are written anew in any case.
    return schema.get("default_value") is None and is_large(transaction, collection)


def add_index_and_comment(
    transaction: Transaction, collection: str, definition: FieldDefinition
) -> None:
    """Add the index and the comment of a new column."""
    # A key and a unique column have an index already.
    if (
        definition.schema.get("is_indexed")
        and not definition.is_key
        and not definition.schema.get("is_unique")
    ):
        add_index(transaction, collection, definition.name, definition.type.index_kind)
    if definition.schema.get("comment"):
        transaction.execute_ddl(
            ddl.comment_on_column(collection, definition.name, definition.schema["comment"])
        )


def insert_field_record(
    transaction: Transaction, collection: str, definition: FieldDefinition
) -> None:
    """Insert the record of a new field, unless there is nothing to record."""
    if definition.has_record:
        metadata.save_field_record(transaction, collection, definition.name, definition.meta)


def require_extension(field_type: FieldType, catalogue: Catalogue) -> None:
    """Raise `Refused` INVALID_PAYLOAD for a geometry where the database has no PostGIS."""
    if field_type.extension and field_type.extension not in catalogue.extensions:
        raise invalid_payload(
            "Geometry fields need PostGIS in the database: CREATE EXTENSION postgis", field="type"
        )


def _parse_new(
    payload: Mapping[str, object], owner: Collection, catalogue: Catalogue
) -> FieldDefinition:
    """Return the definition of a new field; raises `Refused` with all of its problems."""
    problems = mismatched_keys(payload, {"collection": (owner.name,)})
    definition = collect_problems(problems, lambda: parse_field(payload))
    if definition:
        collect_problems(problems, lambda: _check_new(definition, owner, catalogue))
    elif str(payload.get("field")) in owner.fields:
        # Without a definition `_check_new` cannot tell, but all problems come in one answer.
        problems.append(duplicate_name_problem(payload["field"]))
    if problems or definition is None:
        raise Refused(problems)
    return definition


def _problems_of_patch(patch: RecordPatch, *, owner: Collection) -> list[Problem]:
    problems = mismatched_keys(patch.payload, {"collection": (owner.name,)})
    # Problems with the present settings of a field are found while it is changed.
    return problems + problems_of_change(require_field(owner, patch.name), patch.payload)


def _check_new(definition: FieldDefinition, owner: Collection, catalogue: Catalogue) -> None:
    if definition.name in owner.fields:
        raise Refused(duplicate_name_problem(definition.name))
    if owner.kind is Kind.FOLDER:
        raise invalid_payload(
            f'"{owner.name}" is a folder and has no fields', collection=owner.name
        )
    if not definition.is_alias:
        require_table(owner, "columns")
    if definition.is_key and owner.primary_key:
        raise invalid_payload(
            f'"{owner.name}" has a primary key already', field="schema.is_primary_key"
        )
    require_extension(definition.type, catalogue)


def _update(
    transaction: Transaction,
    owner: Collection,
    field: Field,
    payload: Mapping[str, object],
    catalogue: Catalogue,
) -> str:
    """Change one field and return its name, which may be new."""
    # Under the former name, by which the whole change is written; the rename comes last.
    alter(transaction, owner, field, payload)
    name = payload.get("field", field.name)
    if name != field.name:
        rename_field(transaction, field, name, catalogue=catalogue)
    return str(name)


class _FieldRename(NamedTuple):
    """The names of a field before and after a change, which may be the same."""

    before: str
    after: str


def _finish_changes(
    transaction: Transaction, renames: Sequence[_FieldRename], *, before: Collection
) -> list[Record]:
    """Adjust indexes and revisions to fields that have changed, and return their records."""
    # The new catalogue shows the results of the changes in PostgreSQL, such as default values.
    catalogue = load_snapshot(transaction).catalogue
    # Another program may have dropped the column or the whole table meanwhile.
    after = require_collection(catalogue, before.name)
    metadata.check_archive(after, before=before)
    update_indexes(transaction, after, catalogue.extensions)
    records = []
    for rename in renames:
        old_field = before.fields.get(rename.before)
        field = require_field(after, rename.after)
        check_text_is_json(transaction, old_field, field)
        was_secret = old_field is not None and old_field.is_secret
        # Revisions hold its values as they were before it became a secret.
        if field.is_secret and not was_secret:
            metadata.delete_from_revisions(transaction, after.name, field.name)
        records.append(field_record(field))
    # A build is a job of this transaction, which its own statements see.
    return with_field_states(records, catalogue, transaction.execute)
