"""Changes of relations: their records, foreign keys and indexes."""

from __future__ import annotations

from collections.abc import Mapping

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, invalid_payload
from cms.schema import ddl
from cms.schema.definitions import FieldDefinition
from cms.schema.meta_settings import (
    RELATION_KEYS,
    RELATION_META,
    RELATION_SCHEMA,
    MetaSettings,
    mismatched_keys,
    parse_settings,
    unknown_keys,
)
from cms.schema.model import Catalogue, ForeignKey, Relation
from cms.schema.records import Record, relation_record
from cms.schema.relation_definitions import (
    JunctionDefinition,
    RelationDefinition,
    check_actions,
    check_allowed_collections,
    check_field_names,
    check_many_to_any,
    parse_relation,
)
from cms.schema.system import RELATIONS
from cms.schema.types import ALIAS, KEY_TYPES, TYPES
from cms.schema.types.numbers import INTEGER
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.snapshot import load_snapshot
from cms.store.store import Store
from cms.store.write_attempts import StructureChange
from cms.structure import metadata
from cms.structure.duplication_fields import prune_duplication_fields
from cms.structure.fields import add_column, insert_field_record
from cms.structure.foreign_keys import add_foreign_key, change_actions
from cms.structure.index_requests import ensure_index
from cms.structure.index_states import with_relation_states
from cms.structure.lookup import ManySide, many_side_of, require_alterable, require_relation
from cms.structure.record_changes import RecordKey
from cms.structure.structure_history import (
    NamedRecord,
    recording,
)


def create_relation(
    store: Store,
    identity: Identity,
    payload: Mapping[str, object],
    *,
    idempotency: Idempotency | None = None,
) -> Record:
    """Make a relation and return its record: many-to-one, many-to-any, or a whole many-to-many."""
    change: StructureChange[Record] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            change.answer = create(transaction, context, payload=payload)
            named += _named(change.answer)
    return change.answer


def create(
    transaction: Transaction, context: RequestContext, *, payload: Mapping[str, object]
) -> Record:
    """Do `create_relation` within a change of structure."""
    many_side = add(transaction, context, payload=payload)
    return _read_record(transaction, many_side)


def add(
    transaction: Transaction, context: RequestContext, *, payload: Mapping[str, object]
) -> ManySide:
    """Add a relation, and return its many side."""
    catalogue = context.snapshot.catalogue
    definition = parse_relation(payload, catalogue)
    # A many-to-many relation is two relations of a junction, made together.
    if isinstance(definition, JunctionDefinition):
        _create_junction(transaction, definition, catalogue)
        return ManySide(definition.junction, definition.near)
    _save_relation(transaction, definition, catalogue)
    return ManySide(definition.collection, definition.field)


def update_relation(
    store: Store,
    identity: Identity,
    many_side: ManySide,
    *,
    payload: Mapping[str, object],
    idempotency: Idempotency | None = None,
) -> Record:
    """Change the record of the relation of a field, or the actions of its foreign key."""
    collection, field = many_side
    change: StructureChange[Record] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            change.answer = update(
                transaction, context, collection=collection, field=field, payload=payload
            )
            named += _named(change.answer)
    return change.answer


def update(
    transaction: Transaction,
    context: RequestContext,
    *,
    collection: str,
    field: str,
    payload: Mapping[str, object],
) -> Record:
    """Do `update_relation` within a change of structure."""
    catalogue = context.snapshot.catalogue
    relation = _alterable_relation(catalogue, collection, field)
    _check_keys(payload, relation, collection, field)
    _update(transaction, relation, payload, catalogue)
    return _read_record(transaction, many_side_of(relation))


def delete_relation(
    store: Store,
    identity: Identity,
    many_side: ManySide,
    *,
    idempotency: Idempotency | None = None,
) -> None:
    """Delete the record of the relation of a field; foreign keys and junctions remain."""
    collection, field = many_side
    change: StructureChange[None] = store.structure_change(identity, idempotency=idempotency)
    for attempt in change:
        with attempt as context, recording(store, attempt, identity.client) as named:
            transaction = attempt.begin_transaction()
            former = delete(transaction, context, collection=collection, field=field)
            named += _named(former)


def delete(
    transaction: Transaction, context: RequestContext, *, collection: str, field: str
) -> Record:
    """Do `delete_relation` within a change of structure; return the record as it was."""
    relation = remove(transaction, context, collection=collection, field=field)
    prune_duplication_fields(transaction)
    return relation_record(relation)


def remove(
    transaction: Transaction, context: RequestContext, *, collection: str, field: str
) -> Relation:
    """Remove the record of a relation; `prune_duplication_fields` has to follow."""
    catalogue = context.snapshot.catalogue
    relation = _alterable_relation(catalogue, collection, field)
    _delete_list_field(transaction, relation, catalogue)
    transaction.execute(statement("drop_relation"), many_side_of(relation))
    return relation


def _named(record: Record) -> list[NamedRecord]:
    """Return the record that a call names: that of the many side, even if it names the other."""
    record_key = RecordKey(RELATIONS, str(record["collection"]), str(record["field"]))
    return [NamedRecord(record_key)]


def _alterable_relation(catalogue: Catalogue, collection: str, field: str) -> Relation:
    relation = require_relation(catalogue, collection, field)
    require_alterable(catalogue, relation.many_collection)
    return relation


def _check_keys(
    payload: Mapping[str, object], relation: Relation, collection: str, field: str
) -> None:
    """Refuse keys of another relation."""
    # A path may name either side; a record that is sent back names the many side.
    expected: dict[str, tuple[object, ...]] = {
        "collection": (collection, relation.many_collection),
        "field": (field, relation.many_field),
        "related_collection": (relation.one_collection,),
    }
    problems = unknown_keys(payload, RELATION_KEYS) + mismatched_keys(payload, expected)
    if problems:
        raise Refused(problems)


def _save_relation(
    transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue
) -> None:
    """Record a relation, and make its foreign key and index if they are missing."""
    require_alterable(catalogue, definition.collection)
    present = catalogue.by_many.get((definition.collection, definition.field))
    # A foreign key is a relation without a record, and may get one.
    if present and present.id is not None:
        raise invalid_payload("There is a relation of this field already", field="field")
    if definition.related is not None:
        _ensure_foreign_key(transaction, definition, catalogue)
    _ensure_index(transaction, definition, catalogue)
    # A relation that was deleted has left a record that marks it so.
    metadata.delete_relation_record(transaction, definition.collection, definition.field)
    _save(transaction, definition)
    _ensure_list_field(transaction, definition, catalogue)


def _ensure_foreign_key(
    transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue
) -> None:
    assert definition.related
    column = catalogue.collections[definition.collection].fields[definition.field].column
    key = catalogue.collections[definition.related].primary_key
    # A foreign key of several columns is there: its field is made of it.
    if column is None:
        return
    assert key
    if column.foreign_table is None:
        # An item outlives the item that it points to if its column can hold null.
        on_delete = "SET NULL" if column.is_nullable else "NO ACTION"
        constraint = ForeignKey(
            name="",
            table=definition.collection,
            columns=(definition.field,),
            foreign_table=definition.related,
            foreign_columns=(key.name,),
            on_update=str(definition.schema.get("on_update", "NO ACTION")),
            on_delete=str(definition.schema.get("on_delete", on_delete)),
        )
        add_foreign_key(transaction, constraint)
    # One that is there already is taken as it is, with its actions.
    elif column.foreign_table != definition.related:
        raise invalid_payload(
            f'The column points to "{column.foreign_table}" already', field="related_collection"
        )


def _ensure_index(
    transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue
) -> None:
    """Index the column of a relation: without it reads from the other side scan the table."""
    column = catalogue.collections[definition.collection].fields[definition.field].column
    if column:
        ensure_index(transaction, definition.collection, column)


def _save(transaction: Transaction, definition: RelationDefinition) -> None:
    # A record without the other side would be that of a many-to-any relation.
    changes = {**definition.meta, "one_collection": definition.related}
    metadata.save_relation_record(transaction, definition.collection, definition.field, changes)


def _ensure_list_field(
    transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue
) -> None:
    """Make the to-many field at the other side, unless there is one without a relation."""
    one_field = definition.meta.get("one_field")
    junction = definition.meta.get("junction_field")
    if not one_field or not definition.related:
        return
    target = require_alterable(catalogue, definition.related)
    name = str(one_field)
    present = target.fields.get(name)
    other = catalogue.by_one.get((target.name, name))
    if present and present.has_value:
        raise invalid_payload(
            f'"{target.name}.{name}" holds a value and lists nothing', field="meta.one_field"
        )
    many_side = ManySide(definition.collection, definition.field)
    # A change of the relation meets its own list field here.
    if other and many_side_of(other) != many_side:
        raise invalid_payload(
            f'"{target.name}.{name}" lists others already', field="meta.one_field"
        )
    if present is None:
        # The marker tells clients whether the list leads through a junction.
        special = ["m2m" if junction else "o2m"]
        field = FieldDefinition(name, ALIAS, MetaSettings(special=special))
        insert_field_record(transaction, target.name, field)


def _delete_list_field(transaction: Transaction, relation: Relation, catalogue: Catalogue) -> None:
    """Delete the to-many field of a relation, which would list nothing without it."""
    if relation.one_collection and relation.one_field:
        metadata.delete_field_records(
            transaction, relation.one_collection, relation.one_field, catalogue=catalogue
        )


def _create_junction(
    transaction: Transaction, definition: JunctionDefinition, catalogue: Catalogue
) -> None:
    """Make a many-to-many relation: its junction table, both sides, and the field that lists."""
    require_alterable(catalogue, definition.collection)
    present = catalogue.collections.get(definition.junction)
    if present is None:
        # A key of its own: an item may be in a list twice.
        key = FieldDefinition(
            "id", INTEGER, schema=MetaSettings(is_primary_key=True, has_auto_increment=True)
        )
        transaction.execute_ddl(ddl.create_table(definition.junction, (key,)))
        metadata.save_collection_record(
            transaction, definition.junction, MetaSettings(hidden="true")
        )
    sides = _junction_sides(definition)
    for side in sides:
        # If the junction exists, only its missing parts are created.
        if present is None or side.field not in present.fields:
            _add_key(transaction, side, catalogue)
    for side in sides:
        # Loaded anew for each side: the first one adds what the second one must see.
        _save_relation(transaction, side, load_snapshot(transaction).catalogue)


def _junction_sides(definition: JunctionDefinition) -> tuple[RelationDefinition, ...]:
    """Return the two many-to-one relations of a junction."""
    # A row of a junction only links two items, and says nothing without them.
    schema = MetaSettings({"on_delete": "CASCADE", **definition.schema})
    near_meta = MetaSettings(
        {**definition.meta, "one_field": definition.field, "junction_field": definition.far}
    )
    # A row that leaves the list is one of the junction, which nobody needs any more.
    near_meta.setdefault("one_deselect_action", "delete")
    far_meta = MetaSettings(
        one_field=definition.meta.get("one_field"), junction_field=definition.near
    )
    junction = definition.junction
    # First the side of the collection that has the list, then the side of the listed items.
    return (
        RelationDefinition(junction, definition.near, definition.collection, near_meta, schema),
        RelationDefinition(junction, definition.far, definition.related, far_meta, schema),
    )


def _add_key(transaction: Transaction, side: RelationDefinition, catalogue: Catalogue) -> None:
    """Add the column of a junction that points to one side, of the type of the key there."""
    assert side.related
    key = catalogue.collections[side.related].key
    schema = MetaSettings()
    # A foreign key has the type of the key that it points to, and its length.
    if key.column and key.column.max_length:
        schema = MetaSettings(max_length=key.column.max_length)
    if key.type.name not in KEY_TYPES:
        reason = (
            f'The key of "{side.related}" is of a type that this service makes no columns of; '
            f'make "{side.field}" yourself'
        )
        raise invalid_payload(reason, field="meta.junction_collection")
    definition = FieldDefinition(
        side.field, TYPES[key.type.name], MetaSettings(hidden="true"), schema
    )
    add_column(transaction, side.collection, definition)
    insert_field_record(transaction, side.collection, definition)


def _update(
    transaction: Transaction,
    relation: Relation,
    payload: Mapping[str, object],
    catalogue: Catalogue,
) -> None:
    problems: list[Problem] = []
    meta = parse_settings(payload.get("meta"), RELATION_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), RELATION_SCHEMA, "schema", problems)
    if problems:
        raise Refused(problems)
    owner = catalogue.collections[relation.many_collection]
    check_field_names(meta, owner)
    check_allowed_collections(meta, catalogue)
    if relation.one_collection is None:
        # The settings must fit together as they will be, unchanged ones included.
        check_many_to_any({**_many_to_any_settings(relation), **meta})
    check_actions(schema, owner.fields[relation.many_field])
    definition = RelationDefinition(
        owner.name, relation.many_field, relation.one_collection, meta, schema
    )
    # A list has no column, so one of another name simply takes its place.
    if "one_field" in meta and meta["one_field"] != relation.one_field:
        _delete_list_field(transaction, relation, catalogue)
        _ensure_list_field(transaction, definition, catalogue)
    # GET answers null for a foreign key without a record: sending that back makes none.
    if payload.get("meta") is not None:
        _save(transaction, definition)
    if schema and relation.constraint:
        column = owner.fields[relation.many_field].column
        change_actions(transaction, relation.constraint, schema, column)


def _many_to_any_settings(relation: Relation) -> dict[str, object]:
    return {
        "one_collection_field": relation.one_collection_field,
        "one_allowed_collections": relation.one_allowed_collections,
    }


def _read_record(transaction: Transaction, many_side: ManySide) -> Record:
    catalogue = load_snapshot(transaction).catalogue
    record = relation_record(catalogue.by_many[many_side])
    return with_relation_states([record], catalogue, transaction.execute)[0]
