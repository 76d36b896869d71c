"""Changes of fields: columns by DDL, aliases and records beside them (specification, sections 2.3 and 4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms.database.connections import Transaction
from cms.database.error_mapping import reporting_nulls
from cms.errors import Problem, Refused, at_index, collect_problems, invalid_payload
from cms.items.write.duplication import prune_duplication_fields
from cms.schema import ddl
from cms.schema.definitions import FieldDefinition, parse_field
from cms.schema.meta_settings import FIELD_META, mismatched_keys
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.schema.records import Record, field_record
from cms.schema.types import TYPES, Family
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.structure import metadata
from cms.structure.alterations import alter, check_text_is_json, faults_of_change, rename
from cms.structure.history import FIELDS, NamedRecord, change_structure
from cms.structure.indexes import add_index, is_index_pending, update_indexes, with_index
from cms.structure.lookup import (
    require_alterable,
    require_field,
    require_table,
    seen,
    visible_field,
    visible_structure,
)


def list_fields(store: Store, identity: Identity, collection: str | None = None) -> list[Record]:
    """Return the records of the fields of one collection, or of all."""

    def work(context: RequestContext) -> list[Record]:
        found = (
            visible_structure(context).collections.values()
            if collection is None
            else [seen(context, collection)]
        )
        return [field_record(field) for owner in found for field in owner.fields.values()]

    return store.run_unversioned_read(identity, work)


def read_field(store: Store, identity: Identity, collection: str, field: str) -> Record:
    """Return one field's record; raises `Refused` NOT_FOUND."""

    def work(context: RequestContext) -> Record:
        return field_record(visible_field(context, collection, field))

    return store.run_unversioned_read(identity, work)


def create_field(
    store: Store,
    identity: Identity,
    collection: str,
    payload: Mapping[str, object],
    *,
    idempotency: Idempotency | None = None,
) -> Record:
    """Add a column, or an alias without one; return its record."""

    def work(transaction: Transaction, context: RequestContext) -> Record:
        owner = require_alterable(context.snapshot.catalogue, collection)
        item = _parsed(payload, owner, context.snapshot.catalogue)
        if not item.is_alias:
            # What was said of a column that was dropped behind the service's back must not come back with its name.
            metadata.delete_stale_field_records(
                transaction, collection, item.name, catalogue=context.snapshot.catalogue
            )
            add_column(transaction, collection, item)
        insert_field_record(transaction, collection, item)
        return _after(transaction, [(item.name, item.name)], before=owner)[0]

    return change_structure(
        store,
        identity,
        work,
        lambda record: [_named(collection, record["field"])],
        idempotency=idempotency,
    )


def update_fields(
    store: Store,
    identity: Identity,
    collection: str,
    changes: Sequence[tuple[str, Mapping[str, object]]],
) -> list[Record]:
    """Change fields of a collection, all or none; return their records in order."""

    def work(transaction: Transaction, context: RequestContext) -> list[Record]:
        owner = require_alterable(context.snapshot.catalogue, collection)
        catalogue = context.snapshot.catalogue
        _check_changes(owner, changes)
        names = [
            (change[0], _update(transaction, owner, change, catalogue=catalogue))
            for change in changes
        ]
        return _after(transaction, names, before=owner)

    def named(records: Sequence[Record]) -> list[NamedRecord]:
        pairs = zip(records, changes, strict=True)
        return [_named(collection, record["field"], former=former) for record, (former, _) in pairs]

    return change_structure(store, identity, work, named)


def delete_field(store: Store, identity: Identity, collection: str, field: str) -> None:
    """Drop a column with its data, its relations, and its name wherever it is named."""

    def work(transaction: Transaction, context: RequestContext) -> None:
        owner = require_alterable(context.snapshot.catalogue, collection)
        found = require_field(owner, field)
        if field == owner.primary_key:
            raise invalid_payload(
                "The primary key cannot be deleted", collection=collection, field=field
            )
        if found.column:
            require_table(owner, "columns")
            transaction.execute_ddl(ddl.drop_column(collection, field))
        metadata.delete_field_records(
            transaction, collection, field, catalogue=context.snapshot.catalogue
        )
        prune_duplication_fields(transaction)

    change_structure(store, identity, work, lambda _: [_named(collection, field)])


def _named(collection: str, field: object, *, former: str | None = None) -> NamedRecord:
    return NamedRecord((FIELDS, collection, str(field)), former)


def add_column(transaction: Transaction, collection: str, item: FieldDefinition) -> None:
    """Add a column with its index and comment."""
    with reporting_nulls(collection, item.name):
        transaction.execute_ddl(ddl.add_column(collection, item))
    add_index_and_comment(transaction, collection, item)


def add_index_and_comment(transaction: Transaction, collection: str, item: FieldDefinition) -> None:
    """Add what a new column has beside itself."""
    if item.schema.get("is_indexed") and not item.is_key and not item.schema.get("is_unique"):
        add_index(transaction, collection, item.name, ddl.index_kind(item.type_name))
    if item.schema.get("comment"):
        transaction.execute_ddl(
            ddl.comment_on_column(collection, item.name, item.schema["comment"])
        )


def insert_field_record(transaction: Transaction, collection: str, item: FieldDefinition) -> None:
    """Record what is said about a new field."""
    keys = {"collection": collection, "field": item.name}
    metadata.save_record(transaction, "system_fields", keys, given=item.meta, known=FIELD_META)


def require_geometry(type_name: str, catalogue: Catalogue) -> None:
    """Raise `Refused` INVALID_PAYLOAD for a geometry where the database has no PostGIS."""
    if TYPES[type_name].family is Family.GEOMETRY and "postgis" not in catalogue.extensions:
        raise invalid_payload(
            "Geometry fields need PostGIS in the database: CREATE EXTENSION postgis", field="type"
        )


def _parsed(
    payload: Mapping[str, object], owner: Collection, catalogue: Catalogue
) -> FieldDefinition:
    """Read the definition of a new field; raises `Refused` with all that is wrong with it."""
    problems = mismatched_keys(payload, {"collection": (owner.name,)})
    item = collect_problems(problems, lambda: parse_field(payload))
    if item:
        collect_problems(problems, lambda: _check_new(item, owner, catalogue))
    elif str(payload.get("field")) in owner.fields:
        problems.append(_taken(payload["field"]))
    if problems or item is None:
        raise Refused(problems)
    return item


def _taken(name: object) -> Problem:
    return invalid_payload(
        f'There is a field "{name}" already', field="field", value=name
    ).problems[0]


def _check_changes(owner: Collection, changes: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    """Refuse what is wrong with any of several changes, before the first of them is made."""
    problems: list[Problem] = []
    for index, (name, payload) in enumerate(changes):
        faults = mismatched_keys(payload, {"collection": (owner.name,)})
        faults += faults_of_change(require_field(owner, name), payload)
        problems += at_index(faults, index, count=len(changes))
    if problems:
        raise Refused(problems)


def _check_new(item: FieldDefinition, owner: Collection, catalogue: Catalogue) -> None:
    if item.name in owner.fields:
        raise Refused(_taken(item.name))
    if owner.kind is Kind.FOLDER:
        raise invalid_payload(
            f'"{owner.name}" is a folder and has no fields', collection=owner.name
        )
    if not item.is_alias:
        require_table(owner, "columns")
    if item.is_key and owner.primary_key:
        raise invalid_payload(
            f'"{owner.name}" has a primary key already', field="schema.is_primary_key"
        )
    require_geometry(item.type_name, catalogue)


def _update(
    transaction: Transaction,
    owner: Collection,
    change: tuple[str, Mapping[str, object]],
    *,
    catalogue: Catalogue,
) -> str:
    """Change one field and return its name, which may be new."""
    name, payload = change
    found = require_field(owner, name)
    alter(transaction, owner, found, payload)
    new = payload.get("field", name)
    if new == name:
        return name
    rename(transaction, found, new, catalogue=catalogue)
    return str(new)


def _after(
    transaction: Transaction, names: Sequence[tuple[str, str]], *, before: Collection
) -> list[Record]:
    """Do what follows from changed fields, named as they were and as they are; return their records."""
    catalogue = load_snapshot(transaction).catalogue
    found = catalogue.collections[before.name]
    metadata.check_archive(found, before=before)
    update_indexes(transaction, found, catalogue.extensions)
    for old, new in names:
        check_text_is_json(transaction, before.fields.get(old), found.fields[new])
        if found.fields[new].is_secret and not (
            old in before.fields and before.fields[old].is_secret
        ):
            metadata.delete_from_revisions(transaction, found.name, new)
    return [_with_deferred_index(transaction, found.fields[new]) for _, new in names]


def _with_deferred_index(transaction: Transaction, field: Field) -> Record:
    """The answer goes out when such an index is there."""
    if field.column and is_index_pending(transaction, field.collection, field.name):
        field = with_index(field)
    return field_record(field)
