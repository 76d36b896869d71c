"""Changes of the types of columns, beside the foreign keys that they are part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms.errors import Refused
from cms.schema import ddl
from cms.schema.meta_settings import COLUMN_SIZES
from cms.schema.model import Catalogue, ForeignKey
from cms.schema.records import Record
from cms.schema_sync.comparison import RecordDiff
from cms.schema_sync.losses import loss_of_values
from cms.schema_sync.record_payloads import update_payload
from cms.schema_sync.structure_transaction import StructureTransaction
from cms.structure import collections, fields
from cms.structure.column_changes import ValuesLost
from cms.structure.foreign_keys import add_foreign_key, drop_foreign_key
from cms.structure.lookup import RecordPatch


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
        sides = ((key.table, key.column), (key.foreign_table, key.foreign_column))
        if (collection, field) in sides:
            keys[f"{key.table}.{key.name}"] = key
    return keys


def _has_both_sides(catalogue: Catalogue, key: ForeignKey) -> bool:
    owner = catalogue.collections.get(key.table)
    return (
        owner is not None
        and key.column in owner.fields
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
        _delete(structure, collection, field)
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


def _delete(structure: StructureTransaction, collection: str, field: str) -> None:
    """Delete a field; a primary key goes with its table."""
    if field == structure.catalogue.collections[collection].primary_key:
        collections.delete(structure.transaction, structure.context, name=collection)
    else:
        fields.delete(structure.transaction, structure.context, collection=collection, name=field)
