"""Changes of fields: columns by DDL, aliases and records beside them (specification, sections 2.3 and 4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms.errors import Problem, Refused, collected, invalid_payload, numbered
from cms.schema import ddl
from cms.schema.definitions import FieldDefinition, parse_field
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.schema.records import Record, field_record
from cms.schema.settings import FIELD_META, contradictions
from cms.schema.types import TYPES, Family
from cms.store import metadata
from cms.store.alterations import alter, check_json, faults_of_change, rename
from cms.store.border import nulls_told
from cms.store.copies import prune_copied
from cms.store.database import Transaction
from cms.store.indexes import add_index, is_coming, keep_indexes, with_index
from cms.store.lookup import alterable, known_field, require_table, seen, seen_field, structure_of
from cms.store.once import Once
from cms.store.snapshot import load_within
from cms.store.store import Identity, Scene, Store
from cms.store.structure_history import FIELDS, Named, restructure


def list_fields(store: Store, identity: Identity, collection: str | None = None) -> list[Record]:
    """Return the records of the fields of one collection, or of all."""

    def work(scene: Scene) -> list[Record]:
        found = structure_of(scene).collections.values() if collection is None else [seen(scene, collection)]
        return [field_record(field) for owner in found for field in owner.fields.values()]

    return store.at_rest(identity, work)


def read_field(store: Store, identity: Identity, collection: str, field: str) -> Record:
    """Return one field's record; raises `Refused` NOT_FOUND."""

    def work(scene: Scene) -> Record:
        return field_record(seen_field(scene, collection, field))

    return store.at_rest(identity, work)


def create_field(
    store: Store, identity: Identity, collection: str, payload: Mapping[str, object], *, once: Once | None = None
) -> Record:
    """Add a column, or an alias without one; return its record."""

    def work(transaction: Transaction, scene: Scene) -> Record:
        owner = alterable(scene.snapshot.catalogue, collection)
        item = _parsed(payload, owner, scene.snapshot.catalogue)
        if not item.is_alias:
            # What was said of a column that was dropped behind the service's back must not come back with its name.
            metadata.forget_former_field(transaction, collection, item.name, catalogue=scene.snapshot.catalogue)
            add_column(transaction, collection, item)
        insert_field_record(transaction, collection, item)
        return _after(transaction, [(item.name, item.name)], before=owner)[0]

    return restructure(store, identity, work, lambda record: [_named(collection, record["field"])], once=once)


def update_fields(
    store: Store, identity: Identity, collection: str, changes: Sequence[tuple[str, Mapping[str, object]]]
) -> list[Record]:
    """Change fields of a collection, all or none; return their records in order."""

    def work(transaction: Transaction, scene: Scene) -> list[Record]:
        owner = alterable(scene.snapshot.catalogue, collection)
        catalogue = scene.snapshot.catalogue
        _check_changes(owner, changes)
        names = [(change[0], _update(transaction, owner, change, catalogue=catalogue)) for change in changes]
        return _after(transaction, names, before=owner)

    def named(records: Sequence[Record]) -> list[Named]:
        pairs = zip(records, changes, strict=True)
        return [_named(collection, record["field"], former=former) for record, (former, _) in pairs]

    return restructure(store, identity, work, named)


def delete_field(store: Store, identity: Identity, collection: str, field: str) -> None:
    """Drop a column with its data, its relations, and its name wherever it is named."""

    def work(transaction: Transaction, scene: Scene) -> None:
        owner = alterable(scene.snapshot.catalogue, collection)
        found = known_field(owner, field)
        if field == owner.primary_key:
            raise invalid_payload("The primary key cannot be deleted", collection=collection, field=field)
        if found.column:
            require_table(owner, "columns")
            transaction.define(ddl.drop_column(collection, field))
        metadata.forget_field(transaction, collection, field, catalogue=scene.snapshot.catalogue)
        prune_copied(transaction)

    restructure(store, identity, work, lambda _: [_named(collection, field)])


def _named(collection: str, field: object, *, former: str | None = None) -> Named:
    return Named((FIELDS, collection, str(field)), former)


def add_column(transaction: Transaction, collection: str, item: FieldDefinition) -> None:
    """Add a column with its index and comment."""
    with nulls_told(collection, item.name):
        transaction.define(ddl.add_column(collection, item))
    complete_column(transaction, collection, item)


def complete_column(transaction: Transaction, collection: str, item: FieldDefinition) -> None:
    """Add what a new column has beside itself."""
    if item.schema.get("is_indexed") and not item.is_key and not item.schema.get("is_unique"):
        add_index(transaction, collection, item.name, ddl.index_kind(item.type_name))
    if item.schema.get("comment"):
        transaction.define(ddl.comment_on_column(collection, item.name, item.schema["comment"]))


def insert_field_record(transaction: Transaction, collection: str, item: FieldDefinition) -> None:
    """Record what is said about a new field."""
    keys = {"collection": collection, "field": item.name}
    metadata.save(transaction, "system_fields", keys, given=item.meta, known=FIELD_META)


def require_geometry(type_name: str, catalogue: Catalogue) -> None:
    """Raise `Refused` INVALID_PAYLOAD for a geometry where the database has no PostGIS."""
    if TYPES[type_name].family is Family.GEOMETRY and "postgis" not in catalogue.extensions:
        raise invalid_payload("Geometry fields need PostGIS in the database: CREATE EXTENSION postgis", field="type")


def _parsed(payload: Mapping[str, object], owner: Collection, catalogue: Catalogue) -> FieldDefinition:
    """Read the definition of a new field; raises `Refused` with all that is wrong with it."""
    problems = contradictions(payload, {"collection": (owner.name,)})
    item = collected(problems, lambda: parse_field(payload))
    if item:
        collected(problems, lambda: _check_new(item, owner, catalogue))
    elif str(payload.get("field")) in owner.fields:
        problems.append(_taken(payload["field"]))
    if problems or item is None:
        raise Refused(problems)
    return item


def _taken(name: object) -> Problem:
    return invalid_payload(f'There is a field "{name}" already', field="field", value=name).problems[0]


def _check_changes(owner: Collection, changes: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    """Refuse what is wrong with any of several changes, before the first of them is made."""
    problems: list[Problem] = []
    for index, (name, payload) in enumerate(changes):
        faults = contradictions(payload, {"collection": (owner.name,)})
        faults += faults_of_change(known_field(owner, name), payload)
        problems += numbered(faults, index, of=len(changes))
    if problems:
        raise Refused(problems)


def _check_new(item: FieldDefinition, owner: Collection, catalogue: Catalogue) -> None:
    if item.name in owner.fields:
        raise Refused(_taken(item.name))
    if owner.kind is Kind.FOLDER:
        raise invalid_payload(f'"{owner.name}" is a folder and has no fields', collection=owner.name)
    if not item.is_alias:
        require_table(owner, "columns")
    if item.is_key and owner.primary_key:
        raise invalid_payload(f'"{owner.name}" has a primary key already', field="schema.is_primary_key")
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
    found = known_field(owner, name)
    alter(transaction, owner, found, payload)
    new = payload.get("field", name)
    if new == name:
        return name
    rename(transaction, found, new, catalogue=catalogue)
    return str(new)


def _after(transaction: Transaction, names: Sequence[tuple[str, str]], *, before: Collection) -> list[Record]:
    """Do what follows from changed fields, named as they were and as they are; return their records."""
    catalogue = load_within(transaction).catalogue
    found = catalogue.collections[before.name]
    metadata.check_archive(found, before=before)
    keep_indexes(transaction, found, catalogue.extensions)
    for old, new in names:
        check_json(transaction, before.fields.get(old), found.fields[new])
        if found.fields[new].secret and not (old in before.fields and before.fields[old].secret):
            metadata.forget_in_revisions(transaction, found.name, new)
    return [_with_late_index(transaction, found.fields[new]) for _, new in names]


def _with_late_index(transaction: Transaction, field: Field) -> Record:
    """The answer goes out when such an index is there."""
    if field.column and is_coming(transaction, field.collection, field.name):
        field = with_index(field)
    return field_record(field)
