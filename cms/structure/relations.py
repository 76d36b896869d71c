"""Changes of relations: foreign keys with their indexes, and records (specification, sections 2.4 and 4.7)."""

from __future__ import annotations

from collections.abc import Mapping

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, invalid_payload, not_found
from cms.items.write.duplication import prune_duplication_fields
from cms.schema import ddl
from cms.schema.definitions import KEY_TYPES, FieldDefinition
from cms.schema.meta_settings import (
    RELATION_KEYS,
    RELATION_META,
    RELATION_SCHEMA,
    MetaSetting,
    MetaSettings,
    mismatched_keys,
    parse_settings,
    unknown_keys,
)
from cms.schema.model import Catalogue, ForeignKey, Relation
from cms.schema.records import Record, related, relation_record
from cms.schema.relation_definitions import (
    JunctionDefinition,
    RelationDefinition,
    check_actions,
    check_allowed_collections,
    check_field_names,
    check_many_to_any,
    parse_relation,
)
from cms.schema.types import TYPES
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.structure import metadata
from cms.structure.fields import add_column, insert_field_record
from cms.structure.history import RELATIONS, NamedRecord, change_structure
from cms.structure.indexes import add_index
from cms.structure.lookup import (
    require_alterable,
    visible_collection,
    visible_field,
    visible_structure,
)

_RECORD: Mapping[str, MetaSetting] = {
    **RELATION_META,
    "one_collection": MetaSetting(TYPES["text"].parse, "text"),
}


def list_relations(store: Store, identity: Identity, collection: str | None = None) -> list[Record]:
    """Return the records of all relations, or of those that have the collection on a side."""

    def work(context: RequestContext) -> list[Record]:
        catalogue = visible_structure(context)
        if collection is None:
            return [relation_record(found) for found in catalogue.relations]
        return [
            relation_record(found)
            for found in catalogue.relations_of(visible_collection(context, collection).name)
        ]

    return store.run_unversioned_read(identity, work)


def read_relation(store: Store, identity: Identity, collection: str, field: str) -> Record:
    """Return the record of the relation that a field of either side belongs to; raises `Refused` NOT_FOUND."""

    def work(context: RequestContext) -> Record:
        visible_field(context, collection, field)
        return relation_record(_require_relation(visible_structure(context), collection, field))

    return store.run_unversioned_read(identity, work)


def create_relation(
    store: Store,
    identity: Identity,
    payload: Mapping[str, object],
    *,
    idempotency: Idempotency | None = None,
) -> Record:
    """Make a relation and return its record: many-to-one and many-to-any, or a whole many-to-many."""

    def work(transaction: Transaction, context: RequestContext) -> Record:
        catalogue = context.snapshot.catalogue
        definition = parse_relation(payload, catalogue)
        if isinstance(definition, JunctionDefinition):
            return _create_junction(transaction, definition, catalogue)
        _save_relation(transaction, definition, catalogue)
        return _after(transaction, definition.collection, definition.field)

    return change_structure(store, identity, work, _named, idempotency=idempotency)


def update_relation(
    store: Store, identity: Identity, place: tuple[str, str], payload: Mapping[str, object]
) -> Record:
    """Change what is said of the relation at (collection, field), or what its foreign key does."""

    def work(transaction: Transaction, context: RequestContext) -> Record:
        found = _alterable_relation(context.snapshot.catalogue, *place)
        _check_keys(payload, place, found)
        _update(transaction, found, payload, context.snapshot.catalogue)
        return _after(transaction, found.many_collection, found.many_field)

    return change_structure(store, identity, work, _named)


def delete_relation(store: Store, identity: Identity, place: tuple[str, str]) -> None:
    """Forget the relation at (collection, field); its foreign key and its junction table remain."""

    def work(transaction: Transaction, context: RequestContext) -> Record:
        found = _alterable_relation(context.snapshot.catalogue, *place)
        _forget_list_field(transaction, found, context.snapshot.catalogue)
        transaction.execute(statement("drop_relation"), (found.many_collection, found.many_field))
        prune_duplication_fields(transaction)
        return relation_record(found)

    change_structure(store, identity, work, _named)


def _named(record: Record) -> list[NamedRecord]:
    """Return the place of a record, which names the many side whatever the call named."""
    return [NamedRecord((RELATIONS, str(record["collection"]), str(record["field"])))]


def _require_relation(catalogue: Catalogue, collection: str, field: str) -> Relation:
    found = related(catalogue, collection, field)
    if found is None:
        raise not_found("relation")
    return found


def _alterable_relation(catalogue: Catalogue, collection: str, field: str) -> Relation:
    found = _require_relation(catalogue, collection, field)
    require_alterable(catalogue, found.many_collection)
    return found


def _check_keys(payload: Mapping[str, object], place: tuple[str, str], found: Relation) -> None:
    """The path may name either side, the record names the many side: both are what is there."""
    said: dict[str, tuple[object, ...]] = {
        "collection": (place[0], found.many_collection),
        "field": (place[1], found.many_field),
        "related_collection": (found.one_collection,),
    }
    if problems := unknown_keys(payload, RELATION_KEYS) + mismatched_keys(payload, said):
        raise Refused(problems)


def _save_relation(
    transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue
) -> None:
    """Record a relation, with a foreign key and its index where there is none yet."""
    require_alterable(catalogue, definition.collection)
    present = catalogue.by_many.get((definition.collection, definition.field))
    if present and present.id is not None:
        raise invalid_payload("There is a relation of this field already", field="field")
    if definition.related is not None:
        _ensure_foreign_key(transaction, definition, catalogue)
    _ensure_index(transaction, definition, catalogue)
    keys = {"many_collection": definition.collection, "many_field": definition.field}
    metadata.delete_record(transaction, "system_relations", keys)
    _save(transaction, definition)
    _ensure_list_field(transaction, definition, catalogue)


def _ensure_foreign_key(
    transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue
) -> None:
    assert definition.related
    column = catalogue.collections[definition.collection].fields[definition.field].column
    key = catalogue.collections[definition.related].primary_key
    assert column and key
    if column.foreign_table is None:
        constraint = ForeignKey(
            name="",
            table=definition.collection,
            column=definition.field,
            foreign_table=definition.related,
            foreign_column=key,
            on_update=str(definition.schema.get("on_update", "NO ACTION")),
            on_delete=str(
                definition.schema.get(
                    "on_delete", "SET NULL" if column.is_nullable else "NO ACTION"
                )
            ),
        )
        transaction.execute_ddl(ddl.add_foreign_key(constraint))
    elif column.foreign_table != definition.related:
        raise invalid_payload(
            f'The column points to "{column.foreign_table}" already', field="related_collection"
        )


def _ensure_index(
    transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue
) -> None:
    """PostgreSQL makes no index for a foreign key, and every read from the other side would scan the table."""
    column = catalogue.collections[definition.collection].fields[definition.field].column
    if column and not column.is_indexed:
        add_index(transaction, definition.collection, definition.field)


def _save(transaction: Transaction, definition: RelationDefinition) -> None:
    keys = {"many_collection": definition.collection, "many_field": definition.field}
    given = {**definition.meta, "one_collection": definition.related}
    metadata.save_record(transaction, "system_relations", keys, changes=given, settings=_RECORD)


def _ensure_list_field(
    transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue
) -> None:
    """Make the to-many field at the other side, unless it is there and free."""
    one_field, junction = definition.meta.get("one_field"), definition.meta.get("junction_field")
    if not one_field or not definition.related:
        return
    target, name = require_alterable(catalogue, definition.related), str(one_field)
    place = definition.collection, definition.field
    present, taken = target.fields.get(name), catalogue.by_one.get((target.name, name))
    if present and present.column:
        raise invalid_payload(
            f'"{target.name}.{name}" is a column and lists nothing', field="meta.one_field"
        )
    if taken and (taken.many_collection, taken.many_field) != place:
        raise invalid_payload(
            f'"{target.name}.{name}" lists others already', field="meta.one_field"
        )
    if present is None:
        item = FieldDefinition(name, "alias", MetaSettings(special=["m2m" if junction else "o2m"]))
        insert_field_record(transaction, target.name, item)


def _forget_list_field(transaction: Transaction, found: Relation, catalogue: Catalogue) -> None:
    """A to-many field without its relation would list nothing."""
    if found.one_collection and found.one_field:
        metadata.delete_field_records(
            transaction, found.one_collection, found.one_field, catalogue=catalogue
        )


def _create_junction(
    transaction: Transaction, definition: JunctionDefinition, catalogue: Catalogue
) -> Record:
    """Make a many-to-many relation: junction table, both sides of it, and the field that lists."""
    require_alterable(catalogue, definition.collection)
    present = catalogue.collections.get(definition.junction)
    if present is None:
        key = FieldDefinition(
            "id", "integer", schema=MetaSettings(is_primary_key=True, has_auto_increment=True)
        )
        transaction.execute_ddl(ddl.create_table(definition.junction, (key,)))
        keys, hidden = {"collection": definition.junction}, MetaSettings(hidden="true")
        metadata.save_record(
            transaction, "system_collections", keys, changes=hidden, settings=_HIDDEN
        )
    sides = ((definition.near, definition.collection), (definition.far, definition.related))
    for column, target in sides:
        if present is None or column not in present.fields:
            _add_key(transaction, definition.junction, column, target, catalogue)
    schema = MetaSettings({"on_delete": "CASCADE", **definition.schema})
    near = MetaSettings(
        {**definition.meta, "one_field": definition.field, "junction_field": definition.far}
    )
    near.setdefault("one_deselect_action", "delete")
    far = MetaSettings(one_field=definition.meta.get("one_field"), junction_field=definition.near)
    for (column, target), meta in zip(sides, (near, far), strict=True):
        now = load_snapshot(transaction).catalogue
        _save_relation(
            transaction, RelationDefinition(definition.junction, column, target, meta, schema), now
        )
    return _after(transaction, definition.junction, definition.near)


_HIDDEN = {"hidden": MetaSetting(TYPES["boolean"].parse, "boolean")}


def _add_key(
    transaction: Transaction, table: str, column: str, target: str, catalogue: Catalogue
) -> None:
    owner = catalogue.collections[target]
    assert owner.primary_key
    key = owner.fields[owner.primary_key]
    schema = (
        MetaSettings(max_length=key.column.max_length)
        if key.column and key.column.max_length
        else MetaSettings()
    )
    if key.type_name not in KEY_TYPES:
        reason = f'The key of "{target}" is of a type that this service makes no columns of; make "{column}" yourself'
        raise invalid_payload(reason, field="meta.junction_collection")
    item = FieldDefinition(column, key.type_name, MetaSettings(hidden="true"), schema)
    add_column(transaction, table, item)
    insert_field_record(transaction, table, item)


def _update(
    transaction: Transaction, found: Relation, payload: Mapping[str, object], catalogue: Catalogue
) -> None:
    problems: list[Problem] = []
    meta = parse_settings(payload.get("meta"), RELATION_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), RELATION_SCHEMA, "schema", problems)
    if problems:
        raise Refused(problems)
    owner = catalogue.collections[found.many_collection]
    check_field_names(meta, owner)
    check_allowed_collections(meta, catalogue)
    if found.one_collection is None:
        check_many_to_any({**_many_to_any_settings(found), **meta})
    check_actions(schema, owner.fields[found.many_field])
    definition = RelationDefinition(
        owner.name, found.many_field, found.one_collection, meta, schema
    )
    if "one_field" in meta and meta["one_field"] != found.one_field:
        _forget_list_field(transaction, found, catalogue)
        _ensure_list_field(transaction, definition, catalogue)
    if (
        payload.get("meta") is not None
    ):  # null is what GET answers for a foreign key that nobody spoke of
        _save(transaction, definition)
    if schema and found.constraint:
        _change_actions(transaction, found.constraint, schema)


def _many_to_any_settings(found: Relation) -> dict[str, object]:
    return {
        "one_collection_field": found.one_collection_field,
        "one_allowed_collections": found.one_allowed_collections,
    }


def _change_actions(transaction: Transaction, present: ForeignKey, schema: MetaSettings) -> None:
    wanted = ForeignKey(
        name=present.name,
        table=present.table,
        column=present.column,
        foreign_table=present.foreign_table,
        foreign_column=present.foreign_column,
        on_update=str(schema.get("on_update", present.on_update)),
        on_delete=str(schema.get("on_delete", present.on_delete)),
    )
    if wanted != present:
        transaction.execute_ddl(ddl.drop_constraint(present.table, present.name))
        transaction.execute_ddl(ddl.add_foreign_key(wanted))


def _after(transaction: Transaction, collection: str, field: str) -> Record:
    return relation_record(load_snapshot(transaction).catalogue.by_many[collection, field])
