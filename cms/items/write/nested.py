"""Writes a payload in a transaction: resolve, authorize, order, run, check.

Everything that the service finds wrong with a payload is refused together, before anything is
written. The rules of permissions on written rows are checked last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from cms.database.error_mapping import Conflict
from cms.errors import STATUS, Problem, Refused
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.hooks import hooks_of
from cms.items.write.item_filters import check_deletion
from cms.items.write.parse.payload_parser import PayloadParser
from cms.items.write.resolving import Resolver
from cms.items.write.run.many_to_any import check_many_to_any
from cms.items.write.run.mutation_sequence import mutation_sequence
from cms.items.write.run.refusal_diagnosis import InquirySet, refuse
from cms.items.write.run.running import run_sequence
from cms.items.write.stages.mutations import AuthorizedDelete, AuthorizedSet, RowSet
from cms.items.write.stages.parsed import ParsedSet
from cms.items.write.stages.problems import with_position
from cms.items.write.stages.resolved_rows import ResolvedRow, ResolvedSet, walk_sets
from cms.items.write.stages.written_rows import WrittenRows
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import as_stored, has_one_text, lock_rows
from cms.schema.payload import REPEATED, invalid_item
from cms.store.store import Store


class CompletePayload(NamedTuple):
    """A payload whose own items are complete; its related items are still as parsed.

    `root` has the items of the call, and no sets below them. `related` is the parsed root with all
    sets below it, None if no item names related items. `parser` holds the problems found so far,
    and collects those of related items.
    """

    parser: PayloadParser
    root: ResolvedSet
    related: ParsedSet | None


def write_tree(
    executor: Executor, authorizer: WriteAuthorizer, payload: CompletePayload
) -> list[str]:
    """Write a payload, and return the keys of its items in their order.

    `authorizer` is that of the transaction. Raises `Refused` with everything that is wrong with the
    payload before anything is written.
    """
    context = executor.context
    catalogue = context.snapshot.catalogue
    authorized = _TreeAuthorization(executor, authorizer, payload).authorize()
    authorized = check_many_to_any(executor, authorized, payload.parser.problems)
    inquiry_sets: list[InquirySet] = []
    for authorized_set in authorized:
        inquiry_sets.append(InquirySet(authorized_set.collection, authorized_set.rows))
    # The last moment at which nothing is written: from here on the database alone refuses values.
    refuse(
        payload.parser.problems, catalogue, inquiry_sets, is_permitted=context.actor.policy.is_admin
    )
    sequence = mutation_sequence(catalogue, authorized)
    with _explaining_conflicts(executor.store):
        written = run_sequence(executor, sequence)
    # Rules may look at any row of the call, so they are tried when all are written.
    with _locating_refusals(sequence.sets, written):
        for row_set in sequence.sets:
            authorizer.check(written, row_set, executor.transaction.execute)
    return written.keys(sequence.sets[0])


@contextmanager
def _explaining_conflicts(store: Store) -> Iterator[None]:
    """Let hooks replace the messages of problems that the database finds."""
    try:
        yield
    except Conflict as conflict:
        # Not by a variable, in which this frame, part of its traceback, would refer to it.
        raise _explained_conflict(store, conflict) from conflict


def _explained_conflict(store: Store, conflict: Conflict) -> Conflict:
    explained = conflict.map_problems(partial(_explained, store))
    # Still a `Conflict`: an import tries halves of its batch after one, but after no other refusal
    # that names its rows.
    (problem,) = explained.problems
    refusal = Conflict(problem, conflict.value, server_text=conflict.server_text)
    refusal.inquiry = explained.inquiry
    return refusal


def _explained(store: Store, problem: Problem) -> Problem:
    collection = str(problem.extensions.get("collection"))
    return hooks_of(store, collection).explained(problem)


@contextmanager
def _locating_refusals(sets: Sequence[RowSet], written: WrittenRows) -> Iterator[None]:
    """Add their positions in the payload to refusals of written rows.

    Hooks look at rows as they are stored: their problems have the collection and the key of a row,
    and the path inside it.
    """
    try:
        yield
    except Refused as refused:
        # Most refusals, as FORBIDDEN, are of no row in particular.
        if not any("key" in problem.extensions for problem in refused.problems):
            raise
        rows = _rows_by_key(sets, written)
        problems = [_located(problem, rows) for problem in refused.problems]
        raise Refused(problems, total=refused.total, inquiry=refused.inquiry) from refused


def _rows_by_key(
    sets: Sequence[RowSet], written: WrittenRows
) -> dict[tuple[object, object], ResolvedRow]:
    """Return the first row of each collection and key."""
    rows: dict[tuple[object, object], ResolvedRow] = {}
    for row_set in sets:
        for row in written.rows(row_set):
            rows.setdefault((row_set.collection.name, row.key), row)
    return rows


def _located(problem: Problem, rows: Mapping[tuple[object, object], ResolvedRow]) -> Problem:
    extensions = dict(problem.extensions)
    row = rows.get((extensions.get("collection"), extensions.get("key")))
    # A change may break rows that it does not name: the key alone tells which.
    if row is None:
        return problem
    if row.is_new:
        # The row is undone, and nobody will find it by its key.
        del extensions["key"]
    return with_position(replace(problem, extensions=extensions), row.position)


class _TreeAuthorization:
    """Resolves and authorizes a payload, set by set from the root down."""

    def __init__(
        self, executor: Executor, authorizer: WriteAuthorizer, payload: CompletePayload
    ) -> None:
        self._executor = executor
        self._authorizer = authorizer
        self._payload = payload

    def authorize(self) -> Sequence[AuthorizedSet]:
        """Return the authorized sets of the resolved tree, in the order of `walk_sets`."""
        root = self._root_as_stored()
        related = self._payload.related
        if related is None:
            return [self._authorized(root)]
        if root.stored_keys:
            # Two calls that replace the list of one item take turns: otherwise each would leave
            # elements of the other in it.
            lock_rows(self._executor, root.collection, root.stored_keys)
        authorized_root = self._authorized_root(root, related)
        tree = self._resolver().resolve(related, root)
        return list(self._authorized_tree(authorized_root._replace(resolved=tree)))

    def _root_as_stored(self) -> ResolvedSet:
        """Return the root, whose stored rows have their keys as PostgreSQL writes them."""
        root = self._payload.root
        if has_one_text(root.collection.key):
            return root
        stored = as_stored(self._executor, root.collection, root.stored_keys)
        rows: list[ResolvedRow] = []
        named: set[str] = set()
        for row in root.rows:
            if row.key is not None:
                row = row._replace(key=stored.get(row.key, row.key))
                if row.key in named:
                    problem = invalid_item(REPEATED, root.collection.name, root.collection.key_name)
                    self._payload.parser.problems.add(problem, row.position)
                named.add(str(row.key))
            rows.append(row)
        return root._replace(rows=rows)

    def _authorized_root(self, root: ResolvedSet, related: ParsedSet) -> AuthorizedSet:
        """Return the authorized root.

        Where the root is refused, a refusal of related items comes before it, such as a hidden
        collection that they name.
        """
        try:
            return self._authorized(root)
        except Refused as refused:
            # Without their keys the rows count as missing: lists of a hidden row are not read,
            # because the answer could reveal their content.
            if refused.status in (STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]):
                rows = [row._replace(key=None) for row in root.rows]
                self._resolver().resolve(related, root._replace(rows=rows))
            raise

    def _authorized_tree(self, root: AuthorizedSet) -> Iterator[AuthorizedSet]:
        """Yield the authorized sets of a tree whose root is authorized already.

        Rows that leave the lists of a set are authorized with it, before the sets below it.
        """
        for resolved in walk_sets(root.resolved):
            authorized = root
            if resolved is not root.resolved:
                authorized = self._authorized(resolved)
            deletes = self._authorized_deletes(resolved)
            if deletes:
                authorized = authorized._replace(deletes=deletes)
            yield authorized

    def _authorized_deletes(self, resolved: ResolvedSet) -> dict[str, AuthorizedDelete]:
        """Return the rows that leave the lists of a set and are deleted, by the lists' fields."""
        fetch = self._executor.transaction.execute
        deletes: dict[str, AuthorizedDelete] = {}
        for to_many in resolved.to_many:
            keys = to_many.deleted_keys
            if keys:
                collection = to_many.elements.collection
                authorized = self._authorizer.authorize_delete(collection, keys, fetch)
                deletes[to_many.name] = authorized
                check_deletion(self._executor, collection, keys)
        return deletes

    def _authorized(self, resolved: ResolvedSet) -> AuthorizedSet:
        fetch = self._executor.transaction.execute
        problems = self._payload.parser.problems
        return self._authorizer.authorize(resolved, fetch, problems)

    def _resolver(self) -> Resolver:
        return Resolver(self._executor, self._payload.parser, self._authorizer)
