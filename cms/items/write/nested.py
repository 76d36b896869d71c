"""Writes a resolved tree: what rows point to comes first, then the rows, then their lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cms.database.error_mapping import Conflict
from cms.errors import STATUS, Refused
from cms.items.write.changes import ChangeSet, RowChange, ToMany, ToOne, walk_change_sets
from cms.items.write.conflicts import locating_conflicts
from cms.items.write.deferred_keys import DeferredKeys
from cms.items.write.deletion import delete_rows
from cms.items.write.inquiry import PayloadInquiry
from cms.items.write.payload_parser import PayloadParser
from cms.items.write.resolving import Resolver
from cms.items.write.rows import (
    WriteContext,
    WrittenRow,
    advance_keys,
    column_by_key,
    insert_rows,
    link_revisions,
    lock_rows,
    replace_reserved_revisions,
    reserve_revisions,
    update_rows,
)


@dataclass(slots=True)
class DeferredWork:
    """What is left for the end of a write.

    `parents` are revisions, each beside the row whose write they were part of. `reserved` are rows
    whose nearest revision does not exist yet, each with the number that stands for it until then.
    """

    deferred_keys: DeferredKeys
    parents: list[tuple[int, RowChange]] = field(default_factory=list)
    reserved: dict[RowChange, int] = field(default_factory=dict)


def write_tree(write_context: WriteContext, parser: PayloadParser, root: ChangeSet) -> list[str]:
    """Write a tree whose root is complete, and return the keys of its items in their order.

    Raises `Refused` with everything that is wrong with the payload before anything is written.
    """
    _authorize_tree(write_context, parser, root)
    catalogue = write_context.context.snapshot.catalogue
    is_admin = write_context.context.actor.policy.is_admin
    parser.problems.refuse(PayloadInquiry(catalogue, root, is_permitted=is_admin))
    deferred = DeferredWork(DeferredKeys(catalogue))
    deferred.deferred_keys.add_new_keys(walk_change_sets(root))
    if not root.is_flat:
        # Rows of one collection may be written by several statements: keys that the database
        # draws for one must not be those that another brings.
        for name, keys in deferred.deferred_keys.pending.items():
            advance_keys(write_context, catalogue.collections[name], list(keys))
    try:
        _write(write_context, root, deferred)
        _write_deferred(write_context, deferred)
    except Conflict as conflict:
        conflict.inquiry = PayloadInquiry(catalogue, root, is_permitted=True)
        raise
    _link_revisions(write_context, deferred)
    for change_set in walk_change_sets(root):
        write_context.authorizer.check(change_set, write_context.transaction.execute)
    return [str(change.key) for change in root.changes]


# Before anything is written


def _authorize_tree(write_context: WriteContext, parser: PayloadParser, root: ChangeSet) -> None:
    """Resolve a tree and check everything that it is to do against the stored rows."""
    if root.is_flat:
        _authorize(write_context, parser, root)
        return
    keys = [change.key for change in root.changes if change.key and not change.is_new]
    if keys:
        # Two calls that replace the same list take turns.
        lock_rows(write_context, root.collection, keys)
    _authorize_root(write_context, parser, root)
    Resolver(write_context, parser).resolve(root)
    _authorize_below(write_context, parser, root)


def _authorize_root(write_context: WriteContext, parser: PayloadParser, root: ChangeSet) -> None:
    """Check the rows of a root before their lists are read.

    Refusals for what is below, which may name what the caller has no permission on, come first.
    The lists of a hidden row are not read for them, so that it is refused like a missing one.
    """
    try:
        _authorize(write_context, parser, root)
    except Refused as refused:
        if refused.status in (STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]):
            for change in root.changes:
                change.key = None
            Resolver(write_context, parser).resolve(root)
        raise


def _authorize_below(write_context: WriteContext, parser: PayloadParser, root: ChangeSet) -> None:
    """Check everything but the root, once it is resolved."""
    for change_set in walk_change_sets(root):
        if change_set is not root:
            _authorize(write_context, parser, change_set)
        for to_many in change_set.to_many_fields.values():
            if to_many.deletes_dropped and to_many.dropped:
                write_context.authorizer.authorize_delete(
                    to_many.change_set.collection,
                    list(to_many.dropped),
                    write_context.transaction.execute,
                )


def _authorize(write_context: WriteContext, parser: PayloadParser, change_set: ChangeSet) -> None:
    fetch = write_context.transaction.execute
    changed = _changed_rows(change_set)
    write_context.authorizer.authorize(change_set, changed, fetch, parser.problems)


def _changed_rows(change_set: ChangeSet) -> list[RowChange]:
    """Return the rows that are updated.

    Below the root a row that was sent with nothing but its key is left alone. A row without a key
    does not exist, which is a problem that is known by then.
    """
    return [
        change
        for change in change_set.changes
        if change.key and not change.is_new and (change.values or not change_set.level)
    ]


# The rows


def _write(write_context: WriteContext, change_set: ChangeSet, deferred: DeferredWork) -> None:
    for to_one in change_set.to_one_fields.values():
        _write_to_one(write_context, to_one, deferred)
    _write_rows(write_context, change_set, deferred)
    for to_many in change_set.to_many_fields.values():
        _write_to_many(write_context, change_set, to_many, deferred)


def _write_to_one(write_context: WriteContext, to_one: ToOne, deferred: DeferredWork) -> None:
    """Write the objects at a to-one field, and let the rows point to them."""
    _write(write_context, to_one.change_set, deferred)
    link = to_one.link
    targets = [target for _, target in to_one.pairs]
    references = _column(write_context, to_one.change_set, link.far, targets)
    for change, target in to_one.pairs:
        change.values[to_one.name] = references[target]
        collection_field = link.collection_field
        if collection_field and change.is_new and change.values.get(collection_field) is None:
            change.values[collection_field] = link.target


def _write_rows(write_context: WriteContext, change_set: ChangeSet, deferred: DeferredWork) -> None:
    collection = change_set.collection
    new = [change for change in change_set.changes if change.is_new]
    deferred.deferred_keys.defer(collection, new, _changed_rows(change_set))
    changed = _changed_rows(change_set)  # again: what is deferred may have been all of a change
    with locating_conflicts(collection, new):
        inserted = insert_rows(write_context, collection, [change.values for change in new])
    _note_written(new, inserted, deferred)
    rows = [(str(change.key), change.values) for change in changed]
    with locating_conflicts(collection, changed):
        updated = update_rows(write_context, collection, rows)
    _note_written(changed, updated, deferred)


def _note_written(
    changes: list[RowChange], written: list[WrittenRow], deferred: DeferredWork
) -> None:
    for change, (key, revision) in zip(changes, written, strict=True):
        change.key = key
        change.revision = revision
        if change.parent_row and revision is not None:
            deferred.parents.append((revision, change.parent_row))


def _write_deferred(write_context: WriteContext, deferred: DeferredWork) -> None:
    for change, (_, revision) in deferred.deferred_keys.write_deferred(write_context):
        change.revision = change.revision or revision
        if change.parent_row and revision is not None:
            deferred.parents.append((revision, change.parent_row))


def _write_to_many(
    write_context: WriteContext, change_set: ChangeSet, to_many: ToMany, deferred: DeferredWork
) -> None:
    """Write the lists of rows; rows that leave go first, and give up their unique values."""
    _write_dropped(write_context, to_many, deferred)
    owners = [owner for owner, _ in to_many.pairs]
    references = _column(write_context, change_set, to_many.link.near, owners)
    for owner, element in to_many.pairs:
        if to_many.link.far in element.values:
            element.values[to_many.link.far] = references[owner]
    _write(write_context, to_many.change_set, deferred)


def _write_dropped(write_context: WriteContext, to_many: ToMany, deferred: DeferredWork) -> None:
    """Unlink or delete the rows that leave a list."""
    if to_many.unlinked:
        _write_rows(write_context, to_many.unlinked, deferred)
    elif to_many.deletes_dropped:
        deleted = delete_rows(
            write_context,
            to_many.change_set.collection,
            list(to_many.dropped),
            enclosing_revisions=_enclosing_revisions(write_context, to_many, deferred),
        )
        for key, revision in deleted:
            if revision is not None:
                deferred.parents.append((revision, to_many.dropped[key]))


def _column(
    write_context: WriteContext, change_set: ChangeSet, column: str, changes: list[RowChange]
) -> dict[RowChange, str | None]:
    """Return what written rows hold in the column that others point to."""
    if column == change_set.key_field:
        return {change: change.key for change in changes}
    keys = [str(change.key) for change in changes]
    values = column_by_key(write_context, change_set.collection, column, keys)
    return {change: values[str(change.key)] for change in changes}


# Revisions


def _enclosing_revisions(
    write_context: WriteContext, to_many: ToMany, deferred: DeferredWork
) -> dict[str, int | None]:
    """Return the revisions of the writes by which rows leave a list, by the keys of these rows.

    They are needed only where deleted rows leave no revisions of their own, which would be linked
    later, but rows that are deleted with them do. Reserved numbers stand for revisions to come.
    """
    if to_many.change_set.collection.accountability == "all":
        return {}
    revisions = {key: _nearest_revision(owner) for key, owner in to_many.dropped.items()}
    waiting = _without_repetitions(
        owner
        for key, owner in to_many.dropped.items()
        if revisions[key] is None and owner not in deferred.reserved
    )
    numbers = reserve_revisions(write_context, len(waiting))
    deferred.reserved.update(zip(waiting, numbers, strict=True))
    return {
        key: revisions[key] or deferred.reserved[owner] for key, owner in to_many.dropped.items()
    }


def _without_repetitions(changes: Iterable[RowChange]) -> list[RowChange]:
    return list(dict.fromkeys(changes))


def _link_revisions(write_context: WriteContext, deferred: DeferredWork) -> None:
    """Give each revision the one of the enclosing write; that of a to-one object is older."""
    links: list[tuple[int, int]] = []
    for revision, parent_row in deferred.parents:
        parent = _nearest_revision(parent_row)
        if parent:
            links.append((revision, parent))
    link_revisions(write_context, links)
    true_parents = {number: _nearest_revision(owner) for owner, number in deferred.reserved.items()}
    replace_reserved_revisions(write_context, true_parents)


def _nearest_revision(change: RowChange | None) -> int | None:
    """Return the revision of a row, or of the nearest one above it that has left any."""
    while change and change.revision is None:
        change = change.parent_row
    return change.revision if change else None
