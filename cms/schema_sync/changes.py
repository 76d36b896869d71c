"""Changes of the structure that lead to a snapshot, made in one transaction.

Each pass compares the structure with the target, and makes the changes that can be made next: first
all deletions, then the rest in the order of dependency. Changes have consequences of their own, of
which a list that goes with its relation is one; the next pass sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cms.database.connections import Transaction
from cms.errors import invalid_payload
from cms.schema.records import Record
from cms.schema_sync.bodies import body, changes_body
from cms.schema_sync.comparison import RecordDiff, of_section
from cms.schema_sync.document import Rename
from cms.schema_sync.losses import Deletions, deletions_of, require_no_loss
from cms.schema_sync.run import Run
from cms.schema_sync.sections import COLLECTIONS, FIELDS, RELATIONS, Records
from cms.schema_sync.snapshot import Snapshot
from cms.schema_sync.type_changes import change_types
from cms.store.context import RequestContext
from cms.structure import collections, fields, relations
from cms.structure.duplication_fields import prune_duplication_fields
from cms.structure.lookup import RecordPatch

MAX_PASSES = 8

_LATER = ("group", "item_duplication_fields")
"""Settings of a collection that name other collections, which may not be there yet."""


def reach(
    transaction: Transaction,
    context: RequestContext,
    target: Snapshot,
    *,
    renames: Iterable[Rename],
    allows_loss: bool,
) -> None:
    """Rename fields, and change the structure until it is that of the target.

    Raises `Refused` UNPROCESSABLE_CONTENT for what would delete data, unless `allows_loss`.
    """
    run = Run(transaction, context, allows_loss)
    for rename in renames:
        _rename(run, rename)
    former: list[RecordDiff] = []
    for _ in range(MAX_PASSES):
        diffs = run.differences(target)
        # The database may write a setting otherwise than the document, and always will.
        if diffs in ([], former):
            break
        former = diffs
        deletions = deletions_of(diffs, run.catalogue)
        if not run.allows_loss:
            require_no_loss(deletions, run.catalogue.collections)
        if deletions:
            _delete(run, deletions)
        else:
            _make_and_change(run, diffs, target)
        run.reload()
    _require_records(run.differences(target))


def _require_records(diffs: Iterable[RecordDiff]) -> None:
    """Raise `Refused` INVALID_PAYLOAD for records that are still missing, or still there."""
    for diff in diffs:
        if diff.before is None or diff.after is None:
            name = ".".join(diff.name)
            raise invalid_payload(f"{diff.section}: {name} does not go with the rest", field=name)


def _rename(run: Run, rename: Rename) -> None:
    patch = RecordPatch(rename.before, {"field": rename.after})
    fields.update_all(run.transaction, run.context, collection=rename.collection, patches=[patch])
    run.reload()


# Deletions, in the reverse order of dependency


def _delete(run: Run, deletions: Deletions) -> None:
    # All by the structure as it was: what is gone with something else is deleted without effect.
    context = run.context
    for collection, field in deletions.relations:
        relation = relations.remove(run.transaction, context, collection=collection, field=field)
        # The snapshot of the column has no foreign key either.
        relations.drop_foreign_key(run.transaction, relation)
    for collection, field in deletions.fields:
        fields.remove(run.transaction, context, collection=collection, name=field)
    for (collection,) in deletions.collections:
        collections.remove(run.transaction, context, name=collection)
    prune_duplication_fields(run.transaction)


# What is new and what changes, in the order of dependency


def _make_and_change(run: Run, diffs: Sequence[RecordDiff], target: Snapshot) -> None:
    created = _create_collections(run, of_section(diffs, COLLECTIONS), target.sections[FIELDS])
    run.reload()
    field_diffs = [diff for diff in of_section(diffs, FIELDS) if diff.name[0] not in created]
    _create_fields(run, field_diffs)
    is_whole = _change_fields(run, field_diffs)
    # Relations and settings may name a field that the next pass makes anew.
    if not is_whole:
        return
    _save_relations(run, of_section(diffs, RELATIONS))
    _change_collections(run, of_section(diffs, COLLECTIONS))


def _create_collections(
    run: Run, diffs: Iterable[RecordDiff], all_fields: Records
) -> frozenset[str]:
    """Create collections with their fields, and return their names."""
    fields_of: dict[str, list[Record]] = {}
    for (collection, _), record in all_fields.items():
        fields_of.setdefault(collection, []).append(body(record, "field", "type"))
    created = []
    for diff in diffs:
        if diff.before is not None or diff.after is None:
            continue
        (name,) = diff.name
        payload = body(diff.after, "collection")
        meta = payload.get("meta")
        if isinstance(meta, Mapping):
            payload["meta"] = {key: value for key, value in meta.items() if key not in _LATER}
        payload["fields"] = fields_of.get(name, [])
        created.append(collections.add(run.transaction, run.context, payload=payload))
    if created:
        run.reload()
    for name in created:
        collections.finish(run.transaction, run.catalogue, name)
    return frozenset(created)


def _create_fields(run: Run, diffs: Iterable[RecordDiff]) -> None:
    for diff in diffs:
        if diff.before is None and diff.after is not None:
            payload = body(diff.after, "field", "type")
            collection = diff.name[0]
            fields.create(run.transaction, run.context, collection=collection, payload=payload)
    run.reload()


def _change_fields(run: Run, diffs: Iterable[RecordDiff]) -> bool:
    """Change fields; return whether all of them are still there."""
    patches: dict[str, list[RecordPatch]] = {}
    retyped: list[RecordDiff] = []
    for diff in diffs:
        if diff.before is None or diff.after is None:
            continue
        if diff.before["type"] != diff.after["type"]:
            retyped.append(diff)
        else:
            collection, field = diff.name
            patches.setdefault(collection, []).append(RecordPatch(field, changes_body(diff)))
    for collection, changes in patches.items():
        fields.update_all(run.transaction, run.context, collection=collection, patches=changes)
    if patches:
        run.reload()
    return change_types(run, retyped)


def _save_relations(run: Run, diffs: Iterable[RecordDiff]) -> None:
    """Change relations, and then create those that are new: their lists may have to be free."""
    created = []
    for diff in diffs:
        if diff.before is None:
            created.append(diff)
            continue
        collection, field = diff.name
        payload = changes_body(diff)
        relations.update(
            run.transaction, run.context, collection=collection, field=field, payload=payload
        )
        run.reload()
    for diff in created:
        assert diff.after
        payload = body(diff.after, "collection", "field", "related_collection")
        # Documents with two relations of one list are refused, so that none depends on another.
        relations.add(run.transaction, run.context, payload=payload)
    run.reload()


def _change_collections(run: Run, diffs: Iterable[RecordDiff]) -> None:
    # All in one step: two groups may change places.
    patches = []
    for diff in diffs:
        if diff.before is not None and diff.after is not None:
            patches.append(RecordPatch(diff.name[0], changes_body(diff)))
    if patches:
        collections.update_all(run.transaction, run.context, patches=patches)
