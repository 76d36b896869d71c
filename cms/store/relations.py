"""Changes of relations: foreign keys with their indexes, and records (specification, sections 2.4 and 4.7)."""

from __future__ import annotations

from collections.abc import Mapping

from cms.errors import Problem, Refused, invalid_payload, not_found
from cms.schema import ddl
from cms.schema.definitions import KEY_TYPES, FieldDefinition
from cms.schema.links import (
    JunctionDefinition,
    RelationDefinition,
    check_actions,
    check_allowed,
    check_any,
    check_named,
    parse_relation,
)
from cms.schema.model import Catalogue, Constraint, Relation
from cms.schema.records import Record, related, relation_record
from cms.schema.settings import (
    RELATION_KEYS,
    RELATION_META,
    RELATION_SCHEMA,
    Setting,
    Settings,
    contradictions,
    parse_settings,
    strange_keys,
)
from cms.schema.types import TYPES
from cms.store import metadata
from cms.store.copies import prune_copied
from cms.store.database import Transaction
from cms.store.fields import add_column, insert_field_record
from cms.store.indexes import add_index
from cms.store.lookup import alterable, seen, seen_field, structure_of
from cms.store.once import Once
from cms.store.snapshot import load_within
from cms.store.statements import statement
from cms.store.store import Identity, Scene, Store
from cms.store.structure_history import RELATIONS, Named, restructure

_RECORD: Mapping[str, Setting] = {**RELATION_META, "one_collection": Setting(TYPES["text"].parse, "text")}


def list_relations(store: Store, identity: Identity, collection: str | None = None) -> list[Record]:
    """Return the records of all relations, or of those that have the collection on a side."""

    def work(scene: Scene) -> list[Record]:
        catalogue = structure_of(scene)
        if collection is None:
            return [relation_record(found) for found in catalogue.relations]
        return [relation_record(found) for found in catalogue.relations_of(seen(scene, collection).name)]

    return store.at_rest(identity, work)


def read_relation(store: Store, identity: Identity, collection: str, field: str) -> Record:
    """Return the record of the relation that a field of either side belongs to; raises `Refused` NOT_FOUND."""

    def work(scene: Scene) -> Record:
        seen_field(scene, collection, field)
        return relation_record(_known(structure_of(scene), collection, field))

    return store.at_rest(identity, work)


def create_relation(
    store: Store, identity: Identity, payload: Mapping[str, object], *, once: Once | None = None
) -> Record:
    """Make a relation and return its record: many-to-one and many-to-any, or a whole many-to-many."""

    def work(transaction: Transaction, scene: Scene) -> Record:
        catalogue = scene.snapshot.catalogue
        definition = parse_relation(payload, catalogue)
        if isinstance(definition, JunctionDefinition):
            return _connect(transaction, definition, catalogue)
        _relate(transaction, definition, catalogue)
        return _after(transaction, definition.collection, definition.field)

    return restructure(store, identity, work, _named, once=once)


def update_relation(store: Store, identity: Identity, place: tuple[str, str], payload: Mapping[str, object]) -> Record:
    """Change what is said of the relation at (collection, field), or what its foreign key does."""

    def work(transaction: Transaction, scene: Scene) -> Record:
        found = _own(scene.snapshot.catalogue, *place)
        _check_keys(payload, place, found)
        _update(transaction, found, payload, scene.snapshot.catalogue)
        return _after(transaction, found.many_collection, found.many_field)

    return restructure(store, identity, work, _named)


def delete_relation(store: Store, identity: Identity, place: tuple[str, str]) -> None:
    """Forget the relation at (collection, field); its foreign key and its junction table remain."""

    def work(transaction: Transaction, scene: Scene) -> Record:
        found = _own(scene.snapshot.catalogue, *place)
        _forget_list(transaction, found, scene.snapshot.catalogue)
        transaction.execute(statement("drop_relation"), (found.many_collection, found.many_field))
        prune_copied(transaction)
        return relation_record(found)

    restructure(store, identity, work, _named)


def _named(record: Record) -> list[Named]:
    """Return the place of a record, which names the many side whatever the call named."""
    return [Named((RELATIONS, str(record["collection"]), str(record["field"])))]


def _known(catalogue: Catalogue, collection: str, field: str) -> Relation:
    found = related(catalogue, collection, field)
    if found is None:
        raise not_found("relation")
    return found


def _own(catalogue: Catalogue, collection: str, field: str) -> Relation:
    found = _known(catalogue, collection, field)
    alterable(catalogue, found.many_collection)
    return found


def _check_keys(payload: Mapping[str, object], place: tuple[str, str], found: Relation) -> None:
    """The path may name either side, the record names the many side: both are what is there."""
    said: dict[str, tuple[object, ...]] = {
        "collection": (place[0], found.many_collection),
        "field": (place[1], found.many_field),
        "related_collection": (found.one_collection,),
    }
    if problems := strange_keys(payload, RELATION_KEYS) + contradictions(payload, said):
        raise Refused(problems)


def _relate(transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue) -> None:
    """Record a relation, with a foreign key and its index where there is none yet."""
    alterable(catalogue, definition.collection)
    present = catalogue.by_many.get((definition.collection, definition.field))
    if present and present.id is not None:
        raise invalid_payload("There is a relation of this field already", field="field")
    if definition.related is not None:
        _constrain(transaction, definition, catalogue)
    _index(transaction, definition, catalogue)
    keys = {"many_collection": definition.collection, "many_field": definition.field}
    metadata.remove(transaction, "system_relations", keys)
    _save(transaction, definition)
    _ensure_list(transaction, definition, catalogue)


def _constrain(transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue) -> None:
    assert definition.related
    column = catalogue.collections[definition.collection].fields[definition.field].column
    key = catalogue.collections[definition.related].primary_key
    assert column and key
    if column.foreign_table is None:
        constraint = Constraint(
            name="",
            table=definition.collection,
            column=definition.field,
            foreign_table=definition.related,
            foreign_column=key,
            on_update=str(definition.schema.get("on_update", "NO ACTION")),
            on_delete=str(definition.schema.get("on_delete", "SET NULL" if column.nullable else "NO ACTION")),
        )
        transaction.define(ddl.add_foreign_key(constraint))
    elif column.foreign_table != definition.related:
        raise invalid_payload(f'The column points to "{column.foreign_table}" already', field="related_collection")


def _index(transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue) -> None:
    """PostgreSQL makes no index for a foreign key, and every read from the other side would scan the table."""
    column = catalogue.collections[definition.collection].fields[definition.field].column
    if column and not column.indexed:
        add_index(transaction, definition.collection, definition.field)


def _save(transaction: Transaction, definition: RelationDefinition) -> None:
    keys = {"many_collection": definition.collection, "many_field": definition.field}
    given = {**definition.meta, "one_collection": definition.related}
    metadata.save(transaction, "system_relations", keys, given=given, known=_RECORD)


def _ensure_list(transaction: Transaction, definition: RelationDefinition, catalogue: Catalogue) -> None:
    """Make the to-many field at the other side, unless it is there and free."""
    one_field, junction = definition.meta.get("one_field"), definition.meta.get("junction_field")
    if not one_field or not definition.related:
        return
    target, name = alterable(catalogue, definition.related), str(one_field)
    place = definition.collection, definition.field
    present, taken = target.fields.get(name), catalogue.by_one.get((target.name, name))
    if present and present.column:
        raise invalid_payload(f'"{target.name}.{name}" is a column and lists nothing', field="meta.one_field")
    if taken and (taken.many_collection, taken.many_field) != place:
        raise invalid_payload(f'"{target.name}.{name}" lists others already', field="meta.one_field")
    if present is None:
        item = FieldDefinition(name, "alias", Settings(special=["m2m" if junction else "o2m"]))
        insert_field_record(transaction, target.name, item)


def _forget_list(transaction: Transaction, found: Relation, catalogue: Catalogue) -> None:
    """A to-many field without its relation would list nothing."""
    if found.one_collection and found.one_field:
        metadata.forget_field(transaction, found.one_collection, found.one_field, catalogue=catalogue)


def _connect(transaction: Transaction, definition: JunctionDefinition, catalogue: Catalogue) -> Record:
    """Make a many-to-many relation: junction table, both sides of it, and the field that lists."""
    alterable(catalogue, definition.collection)
    present = catalogue.collections.get(definition.junction)
    if present is None:
        key = FieldDefinition("id", "integer", schema=Settings(is_primary_key=True, has_auto_increment=True))
        transaction.define(ddl.create_table(definition.junction, (key,)))
        keys, hidden = {"collection": definition.junction}, Settings(hidden="true")
        metadata.save(transaction, "system_collections", keys, given=hidden, known=_HIDDEN)
    sides = ((definition.near, definition.collection), (definition.far, definition.related))
    for column, target in sides:
        if present is None or column not in present.fields:
            _add_key(transaction, definition.junction, column, target, catalogue)
    schema = Settings({"on_delete": "CASCADE", **definition.schema})
    near = Settings({**definition.meta, "one_field": definition.field, "junction_field": definition.far})
    near.setdefault("one_deselect_action", "delete")
    far = Settings(one_field=definition.meta.get("one_field"), junction_field=definition.near)
    for (column, target), meta in zip(sides, (near, far), strict=True):
        now = load_within(transaction).catalogue
        _relate(transaction, RelationDefinition(definition.junction, column, target, meta, schema), now)
    return _after(transaction, definition.junction, definition.near)


_HIDDEN = {"hidden": Setting(TYPES["boolean"].parse, "boolean")}


def _add_key(transaction: Transaction, table: str, column: str, target: str, catalogue: Catalogue) -> None:
    owner = catalogue.collections[target]
    assert owner.primary_key
    key = owner.fields[owner.primary_key]
    schema = Settings(max_length=key.column.max_length) if key.column and key.column.max_length else Settings()
    if key.type_name not in KEY_TYPES:
        reason = f'The key of "{target}" is of a type that this service makes no columns of; make "{column}" yourself'
        raise invalid_payload(reason, field="meta.junction_collection")
    item = FieldDefinition(column, key.type_name, Settings(hidden="true"), schema)
    add_column(transaction, table, item)
    insert_field_record(transaction, table, item)


def _update(transaction: Transaction, found: Relation, payload: Mapping[str, object], catalogue: Catalogue) -> None:
    problems: list[Problem] = []
    meta = parse_settings(payload.get("meta"), RELATION_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), RELATION_SCHEMA, "schema", problems)
    if problems:
        raise Refused(problems)
    owner = catalogue.collections[found.many_collection]
    check_named(meta, owner)
    check_allowed(meta, catalogue)
    if found.one_collection is None:
        check_any({**_said(found), **meta})
    check_actions(schema, owner.fields[found.many_field])
    definition = RelationDefinition(owner.name, found.many_field, found.one_collection, meta, schema)
    if "one_field" in meta and meta["one_field"] != found.one_field:
        _forget_list(transaction, found, catalogue)
        _ensure_list(transaction, definition, catalogue)
    if payload.get("meta") is not None:  # null is what GET answers for a foreign key that nobody spoke of
        _save(transaction, definition)
    if schema and found.constraint:
        _change_actions(transaction, found.constraint, schema)


def _said(found: Relation) -> dict[str, object]:
    return {
        "one_collection_field": found.one_collection_field,
        "one_allowed_collections": found.one_allowed_collections,
    }


def _change_actions(transaction: Transaction, present: Constraint, schema: Settings) -> None:
    wanted = Constraint(
        name=present.name,
        table=present.table,
        column=present.column,
        foreign_table=present.foreign_table,
        foreign_column=present.foreign_column,
        on_update=str(schema.get("on_update", present.on_update)),
        on_delete=str(schema.get("on_delete", present.on_delete)),
    )
    if wanted != present:
        transaction.define(ddl.drop_constraint(present.table, present.name))
        transaction.define(ddl.add_foreign_key(wanted))


def _after(transaction: Transaction, collection: str, field: str) -> Record:
    return relation_record(load_within(transaction).catalogue.by_many[collection, field])
