"""Changes of collections: transactional DDL with its records (specification, sections 2.2 and 4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, at_index, collect_problems, invalid_payload
from cms.items.write.duplication import check_duplication_fields, prune_duplication_fields
from cms.schema import ddl
from cms.schema.definitions import CollectionDefinition, parse_collection
from cms.schema.meta_settings import (
    COLLECTION_META,
    COLLECTION_SCHEMA,
    MetaSettings,
    mismatched_keys,
    parse_settings,
    unknown_keys,
)
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.records import Record, collection_record
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.structure import metadata
from cms.structure.fields import add_index_and_comment, insert_field_record, require_geometry
from cms.structure.history import COLLECTIONS, NamedRecord, change_structure
from cms.structure.indexes import update_indexes
from cms.structure.lookup import require_alterable, require_table, seen, visible_structure

_NOTHING: Mapping[str, object] = MappingProxyType({})
_RECORD_KEYS = ("collection", "meta", "schema")


def list_collections(store: Store, identity: Identity) -> list[Record]:
    """Return the records of all collections that the caller may know of, by name."""

    def work(context: RequestContext) -> list[Record]:
        return [
            collection_record(found) for found in visible_structure(context).collections.values()
        ]

    return store.run_unversioned_read(identity, work)


def read_collection(store: Store, identity: Identity, name: str) -> Record:
    """Return one record; raises `Refused` NOT_FOUND, or FORBIDDEN to who is no administrator."""

    def work(context: RequestContext) -> Record:
        return collection_record(seen(context, name))

    return store.run_unversioned_read(identity, work)


def create_collection(
    store: Store,
    identity: Identity,
    payload: Mapping[str, object],
    *,
    idempotency: Idempotency | None = None,
) -> Record:
    """Create a table, or a folder without one, with its fields; return its record."""

    def work(transaction: Transaction, context: RequestContext) -> Record:
        definition = parse_collection(payload)
        _check_new(definition, context.snapshot.catalogue)
        # What was said of a table that was dropped behind the service's back must not come back with its name.
        metadata.delete_collection_records(
            transaction, definition.name, catalogue=context.snapshot.catalogue
        )
        if definition.schema is not None:
            _create_table(transaction, definition)
        _save(transaction, definition.name, definition.meta, context.snapshot.catalogue)
        for item in definition.fields:
            insert_field_record(transaction, definition.name, item)
        after = load_snapshot(transaction).catalogue
        metadata.check_archive(after.collections[definition.name])
        check_duplication_fields(after, after.collections[definition.name])
        update_indexes(transaction, after.collections[definition.name], after.extensions)
        return collection_record(after.collections[definition.name])

    return change_structure(
        store,
        identity,
        work,
        lambda record: [_named(record["collection"])],
        idempotency=idempotency,
    )


def update_collections(
    store: Store, identity: Identity, changes: Sequence[tuple[str, Mapping[str, object]]]
) -> list[Record]:
    """Change the records of collections, all or none; return them in order."""

    def work(transaction: Transaction, context: RequestContext) -> list[Record]:
        catalogue, names = context.snapshot.catalogue, [name for name, _ in changes]
        _check_changes(changes, catalogue)
        for name, payload in changes:
            _update(transaction, require_alterable(catalogue, name), payload, catalogue)
        after = load_snapshot(transaction).catalogue
        _refuse_cycles(after, names)
        for name in names:
            metadata.check_archive(after.collections[name], before=catalogue.collections[name])
            check_duplication_fields(
                after, after.collections[name], before=catalogue.collections[name]
            )
            update_indexes(transaction, after.collections[name], after.extensions)
        return [collection_record(after.collections[name]) for name in names]

    return change_structure(store, identity, work, lambda _: [_named(name) for name, _ in changes])


def delete_collection(store: Store, identity: Identity, name: str) -> None:
    """Drop a table with its items, its records, and every reference to it."""

    def work(transaction: Transaction, context: RequestContext) -> None:
        found = require_alterable(context.snapshot.catalogue, name)
        if (
            found.kind is Kind.VIEW
        ):  # others may have built on it, and no request could bring it back
            raise invalid_payload(f'"{name}" is a view; drop it in the database', collection=name)
        _drop(transaction, found)
        metadata.delete_collection_records(transaction, name, catalogue=context.snapshot.catalogue)
        prune_duplication_fields(transaction)

    change_structure(store, identity, work, lambda _: [_named(name)], dropped=name)


def _named(name: object) -> NamedRecord:
    return NamedRecord((COLLECTIONS, str(name)))


def _check_new(definition: CollectionDefinition, catalogue: Catalogue) -> None:
    problems: list[Problem] = []
    name = definition.name
    columns = {item.name for item in definition.fields if not item.is_alias}
    if name in catalogue.collections:
        reason = f'There is a collection "{name}" already'
        problems += invalid_payload(reason, field="collection", value=name).problems
    for item in definition.fields:
        collect_problems(problems, partial(require_geometry, item.type_name, catalogue))
    collect_problems(problems, lambda: _check_named_fields(definition.meta, columns))
    collect_problems(problems, lambda: _check_group(definition.meta.get("group"), catalogue))
    if problems:
        raise Refused(problems)


def _check_named_fields(
    meta: MetaSettings, columns: set[str], *, known: Mapping[str, object] = _NOTHING
) -> None:
    """A sort or archive field that is not there would silently do nothing; what is `known` may stay as it is."""
    given = {key: meta.get(key) for key in ("sort_field", "archive_field")}
    wrong = [
        key
        for key, field in given.items()
        if field and field not in columns and field != known.get(key)
    ]
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
    transaction.execute_ddl(ddl.create_table(definition.name, definition.fields))
    if definition.schema and definition.schema.get("comment"):
        transaction.execute_ddl(ddl.comment_on_table(definition.name, definition.schema["comment"]))
    for item in definition.fields:
        add_index_and_comment(transaction, definition.name, item)


def _check_changes(
    changes: Sequence[tuple[str, Mapping[str, object]]], catalogue: Catalogue
) -> None:
    """Refuse what is wrong with any of several changes, before the first of them is made."""
    problems: list[Problem] = []
    for index, (name, payload) in enumerate(changes):
        problems += at_index(
            _faults(require_alterable(catalogue, name), payload, catalogue),
            index,
            count=len(changes),
        )
    if problems:
        raise Refused(problems)


def _faults(
    found: Collection, payload: Mapping[str, object], catalogue: Catalogue
) -> list[Problem]:
    problems = unknown_keys(payload, _RECORD_KEYS) + mismatched_keys(
        payload, {"collection": (found.name,)}
    )
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", problems)
    parse_settings(payload.get("schema"), COLLECTION_SCHEMA, "schema", problems)
    columns = {field.name for field in found.columns}
    collect_problems(
        problems, lambda: _check_named_fields(meta, columns, known=found.meta or _NOTHING)
    )
    collect_problems(problems, lambda: _check_group(meta.get("group"), catalogue))
    return problems


def _update(
    transaction: Transaction, found: Collection, payload: Mapping[str, object], catalogue: Catalogue
) -> None:
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", [])
    schema = parse_settings(payload.get("schema"), COLLECTION_SCHEMA, "schema", [])
    if schema.get("comment", found.comment) != found.comment:
        require_table(found, "comment")
        transaction.execute_ddl(ddl.comment_on_table(found.name, schema["comment"]))
    if payload.get("meta") is not None:  # null is what GET answers for a table that nobody spoke of
        _save(transaction, found.name, meta, catalogue)


def _save(transaction: Transaction, name: str, meta: MetaSettings, catalogue: Catalogue) -> None:
    group = meta.get("group")
    if group is not None:
        _ensure_group(transaction, str(group), catalogue)
    keys = {"collection": name}
    metadata.save_record(transaction, "system_collections", keys, given=meta, known=COLLECTION_META)


def _ensure_group(transaction: Transaction, name: str, catalogue: Catalogue) -> None:
    """A group is any collection of the user's; one that nobody spoke of yet gets its record."""
    _check_group(name, catalogue)
    keys = {"collection": name}
    metadata.save_record(transaction, "system_collections", keys, given={}, known=COLLECTION_META)


def _check_group(name: object, catalogue: Catalogue) -> None:
    found = None if name is None else catalogue.collections.get(str(name))
    if name is not None and (found is None or found.system):
        raise invalid_payload(
            f'meta.group: there is no collection "{name}"', field="meta.group", value=name
        )


def _refuse_cycles(catalogue: Catalogue, names: Iterable[str]) -> None:
    """Look at the groups as the whole change leaves them."""
    for name in names:
        seen, found = {name}, catalogue.collections[name].group
        while found:
            if found in seen:
                raise invalid_payload(
                    f'meta.group: "{name}" would be inside itself', field="meta.group", value=name
                )
            seen.add(found)
            found = catalogue.collections[found].group


def _drop(transaction: Transaction, found: Collection) -> None:
    """Drop foreign keys that point here by name: CASCADE would also take views along, unasked."""
    if found.kind is not Kind.TABLE:
        return
    for table, constraint in transaction.execute(statement("foreign_keys_to"), (found.name,)):
        transaction.execute_ddl(ddl.drop_constraint(table, constraint))
    transaction.execute_ddl(ddl.drop_table(found.name))
