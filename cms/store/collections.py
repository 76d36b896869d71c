"""Changes of collections: transactional DDL with its records (specification, sections 2.2 and 4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from cms.errors import Problem, Refused, collected, invalid_payload, numbered
from cms.schema import ddl
from cms.schema.definitions import CollectionDefinition, parse_collection
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.records import Record, collection_record
from cms.schema.settings import (
    COLLECTION_META,
    COLLECTION_SCHEMA,
    Settings,
    contradictions,
    parse_settings,
    strange_keys,
)
from cms.store import metadata
from cms.store.copies import check_copied, prune_copied
from cms.store.database import Transaction
from cms.store.fields import complete_column, insert_field_record, require_geometry
from cms.store.indexes import keep_indexes
from cms.store.lookup import alterable, require_table, seen, structure_of
from cms.store.once import Once
from cms.store.snapshot import load_within
from cms.store.statements import statement
from cms.store.store import Identity, Scene, Store
from cms.store.structure_history import COLLECTIONS, Named, restructure

_NOTHING: Mapping[str, object] = MappingProxyType({})
_RECORD_KEYS = ("collection", "meta", "schema")


def list_collections(store: Store, identity: Identity) -> list[Record]:
    """Return the records of all collections that the caller may know of, by name."""

    def work(scene: Scene) -> list[Record]:
        return [collection_record(found) for found in structure_of(scene).collections.values()]

    return store.at_rest(identity, work)


def read_collection(store: Store, identity: Identity, name: str) -> Record:
    """Return one record; raises `Refused` NOT_FOUND, or FORBIDDEN to who is no administrator."""

    def work(scene: Scene) -> Record:
        return collection_record(seen(scene, name))

    return store.at_rest(identity, work)


def create_collection(
    store: Store, identity: Identity, payload: Mapping[str, object], *, once: Once | None = None
) -> Record:
    """Create a table, or a folder without one, with its fields; return its record."""

    def work(transaction: Transaction, scene: Scene) -> Record:
        definition = parse_collection(payload)
        _check_new(definition, scene.snapshot.catalogue)
        # What was said of a table that was dropped behind the service's back must not come back with its name.
        metadata.forget_collection(transaction, definition.name, catalogue=scene.snapshot.catalogue)
        if definition.schema is not None:
            _create_table(transaction, definition)
        _save(transaction, definition.name, definition.meta, scene.snapshot.catalogue)
        for item in definition.fields:
            insert_field_record(transaction, definition.name, item)
        after = load_within(transaction).catalogue
        metadata.check_archive(after.collections[definition.name])
        check_copied(after, after.collections[definition.name])
        keep_indexes(transaction, after.collections[definition.name], after.extensions)
        return collection_record(after.collections[definition.name])

    return restructure(store, identity, work, lambda record: [_named(record["collection"])], once=once)


def update_collections(
    store: Store, identity: Identity, changes: Sequence[tuple[str, Mapping[str, object]]]
) -> list[Record]:
    """Change the records of collections, all or none; return them in order."""

    def work(transaction: Transaction, scene: Scene) -> list[Record]:
        catalogue, names = scene.snapshot.catalogue, [name for name, _ in changes]
        _check_changes(changes, catalogue)
        for name, payload in changes:
            _update(transaction, alterable(catalogue, name), payload, catalogue)
        after = load_within(transaction).catalogue
        _refuse_cycles(after, names)
        for name in names:
            metadata.check_archive(after.collections[name], before=catalogue.collections[name])
            check_copied(after, after.collections[name], before=catalogue.collections[name])
            keep_indexes(transaction, after.collections[name], after.extensions)
        return [collection_record(after.collections[name]) for name in names]

    return restructure(store, identity, work, lambda _: [_named(name) for name, _ in changes])


def delete_collection(store: Store, identity: Identity, name: str) -> None:
    """Drop a table with its items, its records, and every reference to it."""

    def work(transaction: Transaction, scene: Scene) -> None:
        found = alterable(scene.snapshot.catalogue, name)
        if found.kind is Kind.VIEW:  # others may have built on it, and no request could bring it back
            raise invalid_payload(f'"{name}" is a view; drop it in the database', collection=name)
        _drop(transaction, found)
        metadata.forget_collection(transaction, name, catalogue=scene.snapshot.catalogue)
        prune_copied(transaction)

    restructure(store, identity, work, lambda _: [_named(name)], dropped=name)


def _named(name: object) -> Named:
    return Named((COLLECTIONS, str(name)))


def _check_new(definition: CollectionDefinition, catalogue: Catalogue) -> None:
    problems: list[Problem] = []
    name = definition.name
    columns = {item.name for item in definition.fields if not item.is_alias}
    if name in catalogue.collections:
        reason = f'There is a collection "{name}" already'
        problems += invalid_payload(reason, field="collection", value=name).problems
    for item in definition.fields:
        collected(problems, partial(require_geometry, item.type_name, catalogue))
    collected(problems, lambda: _check_named_fields(definition.meta, columns))
    collected(problems, lambda: _check_group(definition.meta.get("group"), catalogue))
    if problems:
        raise Refused(problems)


def _check_named_fields(meta: Settings, columns: set[str], *, known: Mapping[str, object] = _NOTHING) -> None:
    """A sort or archive field that is not there would silently do nothing; what is `known` may stay as it is."""
    given = {key: meta.get(key) for key in ("sort_field", "archive_field")}
    wrong = [key for key, field in given.items() if field and field not in columns and field != known.get(key)]
    if wrong:
        raise Refused(
            Problem(
                "INVALID_PAYLOAD",
                f"Invalid payload. meta.{key}: there is no such field.",
                {"reason": "there is no such field", "field": f"meta.{key}", "value": given[key]},
            )
            for key in wrong
        )


def _create_table(transaction: Transaction, definition: CollectionDefinition) -> None:
    transaction.define(ddl.create_table(definition.name, definition.fields))
    if definition.schema and definition.schema.get("comment"):
        transaction.define(ddl.comment_on_table(definition.name, definition.schema["comment"]))
    for item in definition.fields:
        complete_column(transaction, definition.name, item)


def _check_changes(changes: Sequence[tuple[str, Mapping[str, object]]], catalogue: Catalogue) -> None:
    """Refuse what is wrong with any of several changes, before the first of them is made."""
    problems: list[Problem] = []
    for index, (name, payload) in enumerate(changes):
        problems += numbered(_faults(alterable(catalogue, name), payload, catalogue), index, of=len(changes))
    if problems:
        raise Refused(problems)


def _faults(found: Collection, payload: Mapping[str, object], catalogue: Catalogue) -> list[Problem]:
    problems = strange_keys(payload, _RECORD_KEYS) + contradictions(payload, {"collection": (found.name,)})
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", problems)
    parse_settings(payload.get("schema"), COLLECTION_SCHEMA, "schema", problems)
    columns = {field.name for field in found.columns}
    collected(problems, lambda: _check_named_fields(meta, columns, known=found.meta or _NOTHING))
    collected(problems, lambda: _check_group(meta.get("group"), catalogue))
    return problems


def _update(transaction: Transaction, found: Collection, payload: Mapping[str, object], catalogue: Catalogue) -> None:
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", [])
    schema = parse_settings(payload.get("schema"), COLLECTION_SCHEMA, "schema", [])
    if schema.get("comment", found.comment) != found.comment:
        require_table(found, "comment")
        transaction.define(ddl.comment_on_table(found.name, schema["comment"]))
    if payload.get("meta") is not None:  # null is what GET answers for a table that nobody spoke of
        _save(transaction, found.name, meta, catalogue)


def _save(transaction: Transaction, name: str, meta: Settings, catalogue: Catalogue) -> None:
    group = meta.get("group")
    if group is not None:
        _ensure_group(transaction, str(group), catalogue)
    keys = {"collection": name}
    metadata.save(transaction, "system_collections", keys, given=meta, known=COLLECTION_META)


def _ensure_group(transaction: Transaction, name: str, catalogue: Catalogue) -> None:
    """A group is any collection of the user's; one that nobody spoke of yet gets its record."""
    _check_group(name, catalogue)
    keys = {"collection": name}
    metadata.save(transaction, "system_collections", keys, given={}, known=COLLECTION_META)


def _check_group(name: object, catalogue: Catalogue) -> None:
    found = None if name is None else catalogue.collections.get(str(name))
    if name is not None and (found is None or found.system):
        raise invalid_payload(f'meta.group: there is no collection "{name}"', field="meta.group", value=name)


def _refuse_cycles(catalogue: Catalogue, names: Iterable[str]) -> None:
    """Look at the groups as the whole change leaves them."""
    for name in names:
        seen, found = {name}, catalogue.collections[name].group
        while found:
            if found in seen:
                raise invalid_payload(f'meta.group: "{name}" would be inside itself', field="meta.group", value=name)
            seen.add(found)
            found = catalogue.collections[found].group


def _drop(transaction: Transaction, found: Collection) -> None:
    """Drop foreign keys that point here by name: CASCADE would also take views along, unasked."""
    if found.kind is not Kind.TABLE:
        return
    for table, constraint in transaction.execute(statement("foreign_keys_to"), (found.name,)):
        transaction.define(ddl.drop_constraint(table, constraint))
    transaction.define(ddl.drop_table(found.name))
