"""Changes of collections: transactional DDL with its records (specification, sections 2.2 and 4.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms.errors import Problem, Refused, invalid_payload
from cms.schema import ddl
from cms.schema.definitions import CollectionDefinition, parse_collection
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.records import Record, collection_record
from cms.schema.settings import COLLECTION_META, COLLECTION_SCHEMA, Settings, parse_settings
from cms.store import metadata
from cms.store.database import Transaction
from cms.store.fields import insert_field_record, require_geometry
from cms.store.lookup import alterable, known
from cms.store.snapshot import load_within
from cms.store.statements import statement
from cms.store.store import Identity, Scene, Store, require_admin


def list_collections(store: Store, identity: Identity) -> list[Record]:
    """Return the records of all collections, by name."""

    def work(scene: Scene) -> list[Record]:
        require_admin(scene.actor)
        return [collection_record(found) for found in scene.snapshot.catalogue.collections.values()]

    return store.at_rest(identity, work)


def read_collection(store: Store, identity: Identity, name: str) -> Record:
    """Return one record; raises `Refused` NOT_FOUND."""

    def work(scene: Scene) -> Record:
        require_admin(scene.actor)
        return collection_record(known(scene.snapshot.catalogue, name))

    return store.at_rest(identity, work)


def create_collection(store: Store, identity: Identity, payload: Mapping[str, object]) -> Record:
    """Create a table, or a folder without one, with its fields; return its record."""

    def work(transaction: Transaction, scene: Scene) -> Record:
        definition = parse_collection(payload)
        _check_new(definition, scene.snapshot.catalogue)
        if definition.schema is not None:
            _create_table(transaction, definition)
        _save(transaction, definition.name, definition.meta)
        for item in definition.fields:
            insert_field_record(transaction, definition.name, item)
        return _after(transaction, definition.name)

    return store.restructuring(identity, work)


def update_collections(
    store: Store, identity: Identity, changes: Sequence[tuple[str, Mapping[str, object]]]
) -> list[Record]:
    """Change the records of collections, all or none; return them in order."""

    def work(transaction: Transaction, scene: Scene) -> list[Record]:
        for name, payload in changes:
            _update(transaction, alterable(scene.snapshot.catalogue, name), payload)
        return [_after(transaction, name) for name, _ in changes]

    return store.restructuring(identity, work)


def delete_collection(store: Store, identity: Identity, name: str) -> None:
    """Drop a table with its items, its records, and every reference to it."""

    def work(transaction: Transaction, scene: Scene) -> None:
        found = alterable(scene.snapshot.catalogue, name)
        if found.kind is Kind.VIEW:
            raise invalid_payload(f'"{name}" is a view; drop it in the database', collection=name)
        _drop(transaction, found)
        metadata.forget_collection(transaction, name)

    store.restructuring(identity, work)


def _check_new(definition: CollectionDefinition, catalogue: Catalogue) -> None:
    if definition.name in catalogue.collections:
        raise invalid_payload(f'There is a collection "{definition.name}" already', field="collection")
    for item in definition.fields:
        require_geometry(item.type_name, catalogue)
    columns = {item.name for item in definition.fields if not item.is_alias}
    _check_named_fields(definition.meta, columns)


def _check_named_fields(meta: Settings, columns: set[str]) -> None:
    """A sort or archive field that is not there would silently do nothing."""
    wrong = [key for key in ("sort_field", "archive_field") if meta.get(key) and meta[key] not in columns]
    if wrong:
        raise Refused(
            Problem(
                "INVALID_PAYLOAD",
                f"Invalid payload. meta.{key}: there is no such field.",
                {"reason": "there is no such field", "field": f"meta.{key}"},
            )
            for key in wrong
        )


def _create_table(transaction: Transaction, definition: CollectionDefinition) -> None:
    transaction.define(ddl.create_table(definition.name, definition.fields))
    if definition.schema and definition.schema.get("comment"):
        transaction.define(ddl.comment_on_table(definition.name, definition.schema["comment"]))
    for item in definition.fields:
        for fragment in ddl.new_column_parts(definition.name, item):
            transaction.define(fragment)


def _update(transaction: Transaction, found: Collection, payload: Mapping[str, object]) -> None:
    problems: list[Problem] = []
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), COLLECTION_SCHEMA, "schema", problems)
    if problems:
        raise Refused(problems)
    _check_named_fields(meta, {field.name for field in found.columns})
    if "comment" in schema and found.kind is Kind.TABLE:
        transaction.define(ddl.comment_on_table(found.name, schema["comment"]))
    if "meta" in payload:
        _save(transaction, found.name, meta)


def _save(transaction: Transaction, name: str, meta: Settings) -> None:
    keys = {"collection": name}
    metadata.save(transaction, "system_collections", keys, given=meta, known=COLLECTION_META)


def _drop(transaction: Transaction, found: Collection) -> None:
    """Drop foreign keys that point here by name: CASCADE would also take views along, unasked."""
    if found.kind is not Kind.TABLE:
        return
    for table, constraint in transaction.execute(statement("foreign_keys_to"), (found.name,)):
        transaction.define(ddl.drop_constraint(table, constraint))
    transaction.define(ddl.drop_table(found.name))


def _after(transaction: Transaction, name: str) -> Record:
    return collection_record(load_within(transaction).catalogue.collections[name])
