"""A settled tree, written batch by batch: what is pointed to first, then the rows, then what belongs to them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cms.errors import STATUS, Refused
from cms.query.drafts import Batch, Draft, Drafter, ToMany, ToOne, batches_of
from cms.store.border import Clash
from cms.store.circles import Circles
from cms.store.clashes import clashes_told
from cms.store.inquiry import PayloadInquiry
from cms.store.removal import delete_rows
from cms.store.rows import (
    Session,
    Written,
    change_rows,
    column_by_key,
    draw_revisions,
    insert_rows,
    link_revisions,
    lock_rows,
    pass_keys,
    pass_revisions_on,
)
from cms.store.settling import Settler


@dataclass(slots=True)
class Trail:
    """What is to be done at the end: `parents` are revisions, each beside the row whose write they were part of.

    `awaited` are rows whose nearest revision is still to come, each with the number that has been named in its place.
    """

    circles: Circles
    parents: list[tuple[int, Draft]] = field(default_factory=list)
    awaited: dict[Draft, int] = field(default_factory=dict)


def write_tree(session: Session, drafter: Drafter, root: Batch) -> list[str]:
    """Write a tree whose root is complete, and return the keys of its items in their order.

    Raises `Refused` with everything that is wrong with the payload before anything is written.
    """
    present = [draft.key for draft in root.drafts if draft.key and not draft.new]
    if present and not root.flat:
        lock_rows(session, root.collection, present)  # of two new states of one list, one comes after the other
    _permit_root(session, drafter, root)
    if not root.flat:
        Settler(session, drafter).settle(root)
        _permit_below(session, drafter, root)
    catalogue = session.scene.snapshot.catalogue
    drafter.faults.refuse(PayloadInquiry(catalogue, root, permitted=session.scene.actor.policy.admin))
    trail = Trail(Circles(catalogue))
    trail.circles.expect(batches_of(root))
    if not root.flat:
        for name, keys in trail.circles.coming.items():  # rows of one call may stand in several of its statements
            pass_keys(session, catalogue.collections[name], list(keys))
    try:
        _write(session, root, trail)
        _note_late(session, trail)
    except Clash as clash:
        clash.inquiry = PayloadInquiry(catalogue, root, permitted=True)
        raise
    _link_revisions(session, trail)
    _check(session, root)
    return [str(draft.key) for draft in root.drafts]


def _permit_root(session: Session, drafter: Drafter, root: Batch) -> None:
    """Check what is to be done with the rows of the root, before what they list is read.

    A refusal for what is below, which may name what the caller has no right to, comes first; the lists of a row that
    is hidden are left alone then, so that it is refused like one that is not there.
    """
    try:
        _permit(session, drafter, root)
    except Refused as refused:
        if not root.flat and refused.status in (STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]):
            for draft in root.drafts:
                draft.key = None
            Settler(session, drafter).settle(root)
        raise


def _permit(session: Session, drafter: Drafter, batch: Batch) -> None:
    """Check what is to be done with the rows of a batch against those that are there, before any of it."""
    session.judge.permit(batch, _changed(batch), session.transaction.execute, drafter.faults)


def _permit_below(session: Session, drafter: Drafter, root: Batch) -> None:
    """Check everything else that is to be done, once it is settled."""
    for batch in batches_of(root):
        if batch is not root:
            _permit(session, drafter, batch)
        for many in batch.manys.values():
            if many.deletes and many.dropped:
                session.judge.permit_removal(many.batch.collection, list(many.dropped), session.transaction.execute)


def _check(session: Session, root: Batch) -> None:
    """Check what has been written against the rules that let it be."""
    for batch in batches_of(root):
        session.judge.check(batch, session.transaction.execute)


def _changed(batch: Batch) -> list[Draft]:
    """Return the rows that change; below the root one that only stands for its key is left alone.

    One without a key is not there, which is told by then.
    """
    return [draft for draft in batch.drafts if draft.key and not draft.new and (draft.values or not batch.level)]


def _write(session: Session, batch: Batch, trail: Trail) -> None:
    for one in batch.ones.values():
        _write_one(session, one, trail)
    _write_rows(session, batch, trail)
    for many in batch.manys.values():
        _write_many(session, batch, many, trail)


def _write_one(session: Session, one: ToOne, trail: Trail) -> None:
    _write(session, one.batch, trail)
    fars = _column(session, one.batch, one.link.far, [found for _, found in one.pairs])
    for draft, found in one.pairs:
        draft.values[one.name] = fars[found]
        if one.link.told_by and draft.values.get(one.link.told_by) is None and draft.new:
            draft.values[one.link.told_by] = one.link.target


def _write_rows(session: Session, batch: Batch, trail: Trail) -> None:
    new = [draft for draft in batch.drafts if draft.new]
    trail.circles.hold_back(batch.collection, new, _changed(batch))
    changed = _changed(batch)
    with clashes_told(batch.collection, new):
        _note(new, insert_rows(session, batch.collection, [draft.values for draft in new]), trail)
    rows = [(str(draft.key), draft.values) for draft in changed]
    with clashes_told(batch.collection, changed):
        _note(changed, change_rows(session, batch.collection, rows), trail)


def _note(drafts: list[Draft], written: list[Written], trail: Trail) -> None:
    for draft, (key, revision) in zip(drafts, written, strict=True):
        draft.key, draft.revision = key, revision
        if draft.above and revision is not None:
            trail.parents.append((revision, draft.above))


def _note_late(session: Session, trail: Trail) -> None:
    for draft, (_, revision) in trail.circles.close(session):
        draft.revision = draft.revision or revision
        if draft.above and revision is not None:
            trail.parents.append((revision, draft.above))


def _write_many(session: Session, batch: Batch, many: ToMany, trail: Trail) -> None:
    """Write what belongs to the rows; what leaves goes first, so that it is in nobody's way."""
    _drop(session, many, trail)
    nears = _column(session, batch, many.link.near, [owner for owner, _ in many.pairs])
    for owner, draft in many.pairs:
        if many.link.far in draft.values:
            draft.values[many.link.far] = nears[owner]
    _write(session, many.batch, trail)


def _drop(session: Session, many: ToMany, trail: Trail) -> None:
    if many.unlinked:
        _write_rows(session, many.unlinked, trail)
    elif many.deletes:
        around = _around(session, many, trail)
        gone = delete_rows(session, many.batch.collection, list(many.dropped), around=around)
        trail.parents += [(revision, many.dropped[key]) for key, revision in gone if revision is not None]


def _around(session: Session, many: ToMany, trail: Trail) -> dict[str, int | None]:
    """Return the revisions of the writes that rows leave a list by, or what stands for those that are to come.

    They are asked for where the rows leave no revisions, which are linked later, but what goes with them does.
    """
    if many.batch.collection.accountability == "all":
        return {}
    around = {key: _nearest(owner) for key, owner in many.dropped.items()}
    owners = {owner: None for key, owner in many.dropped.items() if around[key] is None}
    unnamed = [owner for owner in owners if owner not in trail.awaited]
    trail.awaited.update(zip(unnamed, draw_revisions(session, len(unnamed)), strict=True))
    return {key: around[key] or trail.awaited[owner] for key, owner in many.dropped.items()}


def _column(session: Session, batch: Batch, column: str, drafts: list[Draft]) -> dict[Draft, str | None]:
    """Return what rows that have been written hold in the column that others point to."""
    if column == batch.key_field:
        return {draft: draft.key for draft in drafts}
    found = column_by_key(session, batch.collection, column, [str(draft.key) for draft in drafts])
    return {draft: found[str(draft.key)] for draft in drafts}


def _link_revisions(session: Session, trail: Trail) -> None:
    """Name the revision of the enclosing write, which for to-one objects came after theirs."""
    link_revisions(session, [(revision, parent) for revision, above in trail.parents if (parent := _nearest(above))])
    pass_revisions_on(session, {number: _nearest(owner) for owner, number in trail.awaited.items()})


def _nearest(draft: Draft | None) -> int | None:
    """A write that left no revision passes what it encloses on to the one that encloses it."""
    while draft and draft.revision is None:
        draft = draft.above
    return draft.revision if draft else None
