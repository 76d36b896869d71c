"""Changes of the structure that lead to a snapshot, made in one transaction.

Each pass compares the structure with the target, and makes the changes that can be made next: first
all deletions, then the rest in the order of dependency. Changes have consequences (a deleted
relation takes its list field along), which the next pass sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cms.database.connections import Transaction
from cms.errors import invalid_payload
from cms.schema_sync.comparison import RecordDiff, of_section
from cms.schema_sync.document import Rename
from cms.schema_sync.losses import Deletions, deletions_of, require_no_loss
from cms.schema_sync.record_payloads import (
    create_payload,
    fields_by_collection,
    new_collection,
    update_payload,
)
from cms.schema_sync.schema_snapshot import SchemaSnapshot
from cms.schema_sync.sections import COLLECTIONS, FIELDS, RELATIONS, RecordsByName
from cms.schema_sync.structure_transaction import StructureTransaction
from cms.schema_sync.type_changes import change_types, has_new_form
from cms.store.context import RequestContext
from cms.structure import collections, fields, relations
from cms.structure.duplication_fields import prune_duplication_fields
from cms.structure.foreign_keys import drop_foreign_key
from cms.structure.lookup import RecordPatch

MAX_PASSES = 8


def reach(
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
