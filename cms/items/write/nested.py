"""A settled tree, written batch by batch: what is pointed to first, then the rows, then what belongs to them."""

from __future__ import annotations

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
    """What is to be done at the end: `parents` are revisions, each beside the row whose write they were part of.

    `awaited` are rows whose nearest revision is still to come, each with the number that has been named in its place.
    """

    deferred_keys: DeferredKeys
    parents: list[tuple[int, RowChange]] = field(default_factory=list)
    awaited: dict[RowChange, int] = field(default_factory=dict)


def write_tree(write_context: WriteContext, parser: PayloadParser, root: ChangeSet) -> list[str]:
    """Write a tree whose root is complete, and return the keys of its items in their order.

    Raises `Refused` with everything that is wrong with the payload before anything is written.
    """
    present = [change.key for change in root.changes if change.key and not change.is_new]
    if present and not root.is_flat:
        lock_rows(
            write_context, root.collection, present
        )  # of two new states of one list, one comes after the other
    _authorize_root(write_context, parser, root)
    if not root.is_flat:
        Resolver(write_context, parser).resolve(root)
        _authorize_below(write_context, parser, root)
    catalogue = write_context.context.snapshot.catalogue
    parser.problems.refuse(
        PayloadInquiry(catalogue, root, is_permitted=write_context.context.actor.policy.is_admin)
    )
    deferred = DeferredWork(DeferredKeys(catalogue))
    deferred.deferred_keys.add_new_keys(walk_change_sets(root))
    if not root.is_flat:
        for (
            name,
            keys,
        ) in (
            deferred.deferred_keys.pending.items()
        ):  # rows of one call may stand in several of its statements
            advance_keys(write_context, catalogue.collections[name], list(keys))
    try:
        _write(write_context, root, deferred)
        _write_deferred(write_context, deferred)
    except Conflict as conflict:
        conflict.inquiry = PayloadInquiry(catalogue, root, is_permitted=True)
        raise
    _link_revisions(write_context, deferred)
    _check(write_context, root)
    return [str(change.key) for change in root.changes]


def _authorize_root(write_context: WriteContext, parser: PayloadParser, root: ChangeSet) -> None:
    """Check what is to be done with the rows of the root, before what they list is read.

    A refusal for what is below, which may name what the caller has no right to, comes first; the lists of a row that
    is hidden are left alone then, so that it is refused like one that is not there.
    """
    try:
        _authorize(write_context, parser, root)
    except Refused as refused:
        if not root.is_flat and refused.status in (STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]):
            for change in root.changes:
                change.key = None
            Resolver(write_context, parser).resolve(root)
        raise


def _authorize(write_context: WriteContext, parser: PayloadParser, change_set: ChangeSet) -> None:
    """Check what is to be done with the rows of a batch against those that are there, before any of it."""
    write_context.authorizer.authorize(
        change_set, _changed(change_set), write_context.transaction.execute, parser.problems
    )


def _authorize_below(write_context: WriteContext, parser: PayloadParser, root: ChangeSet) -> None:
    """Check everything else that is to be done, once it is settled."""
    for change_set in walk_change_sets(root):
        if change_set is not root:
            _authorize(write_context, parser, change_set)
        for many in change_set.to_many_fields.values():
            if many.deletes_dropped and many.dropped:
                write_context.authorizer.authorize_delete(
                    many.change_set.collection,
                    list(many.dropped),
                    write_context.transaction.execute,
                )


def _check(write_context: WriteContext, root: ChangeSet) -> None:
    """Check what has been written against the rules that let it be."""
    for change_set in walk_change_sets(root):
        write_context.authorizer.check(change_set, write_context.transaction.execute)


def _changed(change_set: ChangeSet) -> list[RowChange]:
    """Return the rows that change; below the root one that only stands for its key is left alone.

    One without a key is not there, which is told by then.
    """
    return [
        change
        for change in change_set.changes
        if change.key and not change.is_new and (change.values or not change_set.level)
    ]


def _write(write_context: WriteContext, change_set: ChangeSet, deferred: DeferredWork) -> None:
    for one in change_set.to_one_fields.values():
        _write_one(write_context, one, deferred)
    _write_rows(write_context, change_set, deferred)
    for many in change_set.to_many_fields.values():
        _write_many(write_context, change_set, many, deferred)


def _write_one(write_context: WriteContext, one: ToOne, deferred: DeferredWork) -> None:
    _write(write_context, one.change_set, deferred)
    fars = _column(write_context, one.change_set, one.link.far, [found for _, found in one.pairs])
    for change, found in one.pairs:
        change.values[one.name] = fars[found]
        if (
            one.link.collection_field
            and change.values.get(one.link.collection_field) is None
            and change.is_new
        ):
            change.values[one.link.collection_field] = one.link.target


def _write_rows(write_context: WriteContext, change_set: ChangeSet, deferred: DeferredWork) -> None:
    new = [change for change in change_set.changes if change.is_new]
    deferred.deferred_keys.defer(change_set.collection, new, _changed(change_set))
    changed = _changed(change_set)
    with locating_conflicts(change_set.collection, new):
        _note(
            new,
            insert_rows(write_context, change_set.collection, [change.values for change in new]),
            deferred,
        )
    rows = [(str(change.key), change.values) for change in changed]
    with locating_conflicts(change_set.collection, changed):
        _note(changed, update_rows(write_context, change_set.collection, rows), deferred)


def _note(changes: list[RowChange], written: list[WrittenRow], deferred: DeferredWork) -> None:
    for change, (key, revision) in zip(changes, written, strict=True):
        change.key, change.revision = key, revision
        if change.parent_row and revision is not None:
            deferred.parents.append((revision, change.parent_row))


def _write_deferred(write_context: WriteContext, deferred: DeferredWork) -> None:
    for change, (_, revision) in deferred.deferred_keys.write_deferred(write_context):
        change.revision = change.revision or revision
        if change.parent_row and revision is not None:
            deferred.parents.append((revision, change.parent_row))


def _write_many(
    write_context: WriteContext, change_set: ChangeSet, many: ToMany, deferred: DeferredWork
) -> None:
    """Write what belongs to the rows; what leaves goes first, so that it is in nobody's way."""
    _drop_rows(write_context, many, deferred)
    nears = _column(write_context, change_set, many.link.near, [owner for owner, _ in many.pairs])
    for owner, change in many.pairs:
        if many.link.far in change.values:
            change.values[many.link.far] = nears[owner]
    _write(write_context, many.change_set, deferred)


def _drop_rows(write_context: WriteContext, many: ToMany, deferred: DeferredWork) -> None:
    if many.unlinked:
        _write_rows(write_context, many.unlinked, deferred)
    elif many.deletes_dropped:
        enclosing_revisions = _enclosing_revisions(write_context, many, deferred)
        gone = delete_rows(
            write_context,
            many.change_set.collection,
            list(many.dropped),
            enclosing_revisions=enclosing_revisions,
        )
        deferred.parents += [
            (revision, many.dropped[key]) for key, revision in gone if revision is not None
        ]


def _enclosing_revisions(
    write_context: WriteContext, many: ToMany, deferred: DeferredWork
) -> dict[str, int | None]:
    """Return the revisions of the writes that rows leave a list by, or what stands for those that are to come.

    They are asked for where the rows leave no revisions, which are linked later, but what goes with them does.
    """
    if many.change_set.collection.accountability == "all":
        return {}
    enclosing_revisions = {key: _nearest_revision(owner) for key, owner in many.dropped.items()}
    owners = {
        owner: None for key, owner in many.dropped.items() if enclosing_revisions[key] is None
    }
    unnamed = [owner for owner in owners if owner not in deferred.awaited]
    deferred.awaited.update(
        zip(unnamed, reserve_revisions(write_context, len(unnamed)), strict=True)
    )
    return {
        key: enclosing_revisions[key] or deferred.awaited[owner]
        for key, owner in many.dropped.items()
    }


def _column(
    write_context: WriteContext, change_set: ChangeSet, column: str, changes: list[RowChange]
) -> dict[RowChange, str | None]:
    """Return what rows that have been written hold in the column that others point to."""
    if column == change_set.key_field:
        return {change: change.key for change in changes}
    found = column_by_key(
        write_context, change_set.collection, column, [str(change.key) for change in changes]
    )
    return {change: found[str(change.key)] for change in changes}


def _link_revisions(write_context: WriteContext, deferred: DeferredWork) -> None:
    """Name the revision of the enclosing write, which for to-one objects came after theirs."""
    link_revisions(
        write_context,
        [
            (revision, parent)
            for revision, parent_row in deferred.parents
            if (parent := _nearest_revision(parent_row))
        ],
    )
    replace_reserved_revisions(
        write_context,
        {number: _nearest_revision(owner) for owner, number in deferred.awaited.items()},
    )


def _nearest_revision(change: RowChange | None) -> int | None:
    """A write that left no revision passes what it encloses on to the one that encloses it."""
    while change and change.revision is None:
        change = change.parent_row
    return change.revision if change else None
