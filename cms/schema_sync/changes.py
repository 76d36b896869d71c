"""Changes of the structure that lead to a snapshot, made in one transaction.

Each pass compares the structure with the target, and makes the changes that can be made next: first
all deletions, then the rest in the order of dependency. Changes have consequences (a deleted
relation takes its list field along), which the next pass sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cms.database.connections import Transaction
from cms.errors import Refused, invalid_payload
from cms.schema import ddl
from cms.schema.meta_settings import COLUMN_SIZES
from cms.schema.model import Catalogue, ForeignKey
from cms.schema.records import Record
from cms.schema_sync.comparison import (
    RecordDiff,
    compare,
    create_payload,
    fields_by_collection,
    new_collection,
    of_section,
    update_payload,
)
from cms.schema_sync.document import Rename
from cms.schema_sync.feasibility import Deletions, deletions_of, loss_of_values, require_no_loss
from cms.schema_sync.schema_snapshot import SchemaSnapshot, snapshot_of
from cms.schema_sync.sections import COLLECTIONS, FIELDS, RELATIONS, RecordsByName
from cms.store.context import RequestContext
from cms.store.snapshot import load_snapshot
from cms.structure import collections, fields, relations
from cms.structure.column_changes import ValuesLost
from cms.structure.duplication_fields import prune_duplication_fields
from cms.structure.foreign_keys import add_foreign_key, drop_foreign_key
from cms.structure.lookup import RecordPatch

MAX_PASSES = 8


def change_structure(
    transaction: Transaction,
    context: RequestContext,
    target: SchemaSnapshot,
    *,
    renames: Iterable[Rename],
    allows_loss: bool,
) -> None:
    """Rename fields, and change the structure until it is that of the target.

    Raises `Refused` UNPROCESSABLE_CONTENT for changes that delete data, unless `allows_loss`.
    """
    structure = StructureTransaction(transaction, context, allows_loss)
    for rename in renames:
        _rename(structure, rename)
    former: list[RecordDiff] = []
    for _ in range(MAX_PASSES):
        diffs = structure.differences(target)
        # The database may write a setting otherwise than the document, and always will.
        if diffs in ([], former):
            break
        former = diffs
        deletions = deletions_of(diffs, structure.catalogue)
        if not structure.allows_loss:
            require_no_loss(deletions, structure.catalogue.collections)
        # Deletions have a pass of their own: they free names that new records may need.
        if deletions:
            _delete(structure, deletions)
        else:
            _make_and_change(structure, diffs, target)
        structure.reload()
    _require_records(structure.differences(target))


def _require_records(diffs: Iterable[RecordDiff]) -> None:
    """Raise `Refused` INVALID_PAYLOAD for records that are still missing, or still there."""
    for diff in diffs:
        if diff.before is None or diff.after is None:
            name = ".".join(diff.name)
            raise invalid_payload(f"{diff.section}: {name} does not go with the rest", field=name)


def _rename(structure: StructureTransaction, rename: Rename) -> None:
    patch = RecordPatch(rename.before, {"field": rename.after})
    fields.update_all(
        structure.transaction, structure.context, collection=rename.collection, patches=[patch]
    )
    structure.reload()


# Deletions, in the reverse order of dependency


def _delete(structure: StructureTransaction, deletions: Deletions) -> None:
    # Every deletion sees the structure as it was before them all: deleting what has gone with
    # something else has no effect.
    context = structure.context
    for collection, field in deletions.relations:
        relation = relations.remove(
            structure.transaction, context, collection=collection, field=field
        )
        # The snapshot of the column has no foreign key either.
        if relation.constraint:
            drop_foreign_key(structure.transaction, relation.constraint)
    for collection, field in deletions.fields:
        # One that is a foreign key of several columns has gone with its relation.
        if structure.catalogue.collections[collection].fields[field].parts:
            continue
        fields.remove(structure.transaction, context, collection=collection, name=field)
    for (collection,) in deletions.collections:
        collections.remove(structure.transaction, context, name=collection)
    prune_duplication_fields(structure.transaction)


# New and changed records, in the order of dependency


def _make_and_change(
    structure: StructureTransaction, diffs: Sequence[RecordDiff], target: SchemaSnapshot
) -> None:
    created = _create_collections(
        structure, of_section(diffs, COLLECTIONS), target.sections[FIELDS]
    )
    structure.reload()
    field_diffs: list[RecordDiff] = []
    for diff in of_section(diffs, FIELDS):
        collection, _ = diff.name
        # New collections have their fields already.
        if collection not in created:
            field_diffs.append(diff)
    _create_fields(structure, field_diffs)
    is_whole = _change_fields(structure, field_diffs)
    # Relations and settings may name a field that the next pass makes anew.
    if not is_whole:
        return
    _save_relations(structure, of_section(diffs, RELATIONS))
    _change_collections(structure, of_section(diffs, COLLECTIONS))


def _create_collections(
    structure: StructureTransaction, diffs: Iterable[RecordDiff], all_fields: RecordsByName
) -> frozenset[str]:
    """Create collections with their fields, and return their names."""
    fields_of = fields_by_collection(all_fields)
    created = []
    for diff in diffs:
        if diff.before is not None or diff.after is None:
            continue
        (name,) = diff.name
        payload = new_collection(diff.after, fields_of.get(name, []))
        created.append(collections.add(structure.transaction, structure.context, payload=payload))
    if created:
        structure.reload()
    for name in created:
        collections.finish(structure.transaction, structure.catalogue, name)
    return frozenset(created)


def _create_fields(structure: StructureTransaction, diffs: Iterable[RecordDiff]) -> None:
    for diff in diffs:
        if diff.before is None and diff.after is not None:
            payload = create_payload(diff.after, "field", "type")
            collection = diff.name[0]
            fields.create(
                structure.transaction, structure.context, collection=collection, payload=payload
            )
    structure.reload()


def _change_fields(structure: StructureTransaction, diffs: Iterable[RecordDiff]) -> bool:
    """Change fields; return whether all of them are still there."""
    patches: dict[str, list[RecordPatch]] = {}
    retyped: list[RecordDiff] = []
    for diff in diffs:
        if diff.before is None or diff.after is None:
            continue
        # The foreign keys of the column have to be out of the way: see `change_types`.
        if has_new_form(diff.before, diff.after):
            retyped.append(diff)
        else:
            collection, field = diff.name
            patches.setdefault(collection, []).append(RecordPatch(field, update_payload(diff)))
    for collection, changes in patches.items():
        fields.update_all(
            structure.transaction, structure.context, collection=collection, patches=changes
        )
    if patches:
        structure.reload()
    return change_types(structure, retyped)


def _save_relations(structure: StructureTransaction, diffs: Iterable[RecordDiff]) -> None:
    """Change relations, and then create those that are new: their lists may have to be free."""
    created = []
    for diff in diffs:
        if diff.before is None:
            created.append(diff)
            continue
        collection, field = diff.name
        payload = update_payload(diff)
        relations.update(
            structure.transaction,
            structure.context,
            collection=collection,
            field=field,
            payload=payload,
        )
        structure.reload()
    for diff in created:
        assert diff.after
        payload = create_payload(diff.after, "collection", "field", "related_collection")
        # Documents with two relations of one list are refused, so that none depends on another.
        relations.add(structure.transaction, structure.context, payload=payload)
    structure.reload()


def _change_collections(structure: StructureTransaction, diffs: Iterable[RecordDiff]) -> None:
    # All collections in one step: two groups may change places.
    patches = []
    for diff in diffs:
        if diff.before is not None and diff.after is not None:
            patches.append(RecordPatch(diff.name[0], update_payload(diff)))
    if patches:
        collections.update_all(structure.transaction, structure.context, patches=patches)


# Types of columns, changed beside the foreign keys that they are part of


def has_new_form(before: Record, after: Record) -> bool:
    """Tell whether a field has another type or size than before."""
    return before["type"] != after["type"] or _sizes(before) != _sizes(after)


def _sizes(record: Record) -> Mapping[str, object]:
    schema = record["schema"]
    if not isinstance(schema, Mapping):
        return {}
    return {key: schema.get(key) for key in COLUMN_SIZES}


def change_types(structure: StructureTransaction, diffs: Sequence[RecordDiff]) -> bool:
    """Change the types and sizes of fields, both sides of a foreign key together.

    Where loss is allowed, values are cut to a new size. A column with values that have no form in
    the new type is deleted: the next pass makes it anew. Return whether all columns are still
    there.
    """
    if not diffs:
        return True
    keys: dict[str, ForeignKey] = {}
    for diff in diffs:
        keys |= _foreign_keys_of(structure.catalogue, *diff.name)
    # PostgreSQL would refuse to change one side of a key alone.
    for key in keys.values():
        drop_foreign_key(structure.transaction, key)
    are_all_there = True
    for diff in diffs:
        if not _change_type(structure, diff):
            are_all_there = False
    structure.reload()
    for key in keys.values():
        if _has_both_sides(structure.catalogue, key):
            add_foreign_key(structure.transaction, key)
    structure.reload()
    return are_all_there


def _foreign_keys_of(catalogue: Catalogue, collection: str, field: str) -> dict[str, ForeignKey]:
    """Return the foreign keys of relations on either side of which a column is."""
    keys = {}
    for relation in catalogue.relations_of(collection):
        key = relation.constraint
        if key is None:
            continue
        is_near = key.table == collection and field in key.columns
        if is_near or (key.foreign_table == collection and field in key.foreign_columns):
            keys[f"{key.table}.{key.name}"] = key
    return keys


def _has_both_sides(catalogue: Catalogue, key: ForeignKey) -> bool:
    owner = catalogue.collections.get(key.table)
    return (
        owner is not None
        and {*key.columns} <= owner.fields.keys()
        and key.foreign_table in catalogue.collections
    )


def _change_type(structure: StructureTransaction, diff: RecordDiff) -> bool:
    """Change the type of a field; return False after deleting it instead."""
    collection, field = diff.name
    # Another field of the collection may have taken it along.
    if collection not in structure.catalogue.collections:
        return False
    deferred = len(structure.transaction.after_commit)
    patch = RecordPatch(field, update_payload(diff, "type"))
    try:
        with structure.transaction.savepoint():
            fields.update_all(
                structure.transaction, structure.context, collection=collection, patches=[patch]
            )
    except ValuesLost as refusal:
        if not structure.allows_loss:
            raise loss_of_values(collection, field) from refusal
        del structure.transaction.after_commit[deferred:]
        if _cut_values(structure, diff):
            return _change_type(structure, diff)
        _delete_field(structure, collection, field)
        structure.reload()
        return False
    return True


def _cut_values(structure: StructureTransaction, diff: RecordDiff) -> bool:
    """Cut the values of a field to its new size; return False where they have no form in it."""
    assert diff.before and diff.after
    collection, name = diff.name
    if diff.before["type"] != diff.after["type"]:
        return False
    field = structure.catalogue.collections[collection].fields[name]
    assert field.column
    data_type = ddl.column_type(field.type, _sizes(diff.after))
    try:
        with structure.transaction.savepoint():
            structure.transaction.run(ddl.cut_values(field, field.column, data_type))
    except Refused as refusal:
        # A number that is too large. Anything else, such as two equal texts, has another reason.
        if refusal.problems[0].code != "VALUE_OUT_OF_RANGE":
            raise
        return False
    return True


def _delete_field(structure: StructureTransaction, collection: str, field: str) -> None:
    """Delete a field; a primary key goes with its table."""
    if field in structure.catalogue.collections[collection].key_names:
        collections.delete(structure.transaction, structure.context, name=collection)
    else:
        fields.delete(structure.transaction, structure.context, collection=collection, name=field)


@dataclass
class StructureTransaction:
    """A transaction with the structure as its changes have left it."""

    transaction: Transaction
    _context: RequestContext
    allows_loss: bool
    _has_changed: bool = False

    @property
    def context(self) -> RequestContext:
        """The context with the structure as it was at the last call of `reload`, or newer."""
        # Loaded at its next use only, because that takes as long as most changes.
        if self._has_changed:
            self._context = self._context._replace(snapshot=load_snapshot(self.transaction))
            self._has_changed = False
        return self._context

    @property
    def catalogue(self) -> Catalogue:
        return self.context.snapshot.catalogue

    def reload(self) -> None:
        self._has_changed = True

    def differences(self, target: SchemaSnapshot) -> list[RecordDiff]:
        return compare(snapshot_of(self.catalogue), target)
