"""Plans the mutations of an authorized tree, without the database.

To-one objects are written first, then the rows that point to them, then the elements of their
lists: each needs the keys of the one before. Rows that leave a list are written before its new
elements, which may take over their unique values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cms.items.write.run.deferred_keys import DeferredKeys, new_keys_of
from cms.items.write.stages.mutations import (
    AuthorizedDelete,
    AuthorizedSet,
    Delete,
    Insert,
    MutationSequence,
    Reference,
    RowId,
    RowSet,
    Update,
)
from cms.items.write.stages.resolved_rows import (
    ResolvedRow,
    ResolvedToMany,
    ResolvedToOne,
)
from cms.items.write.transaction.row_indexes import at_indexes
from cms.schema.model import Catalogue


def mutation_sequence(
    catalogue: Catalogue, authorized: Sequence[AuthorizedSet]
) -> MutationSequence:
    """Return the sequence that writes a tree, whose sets are in the order of `walk_sets`."""
    new_keys = _new_keys(authorized)
    builder = _SequenceBuilder(authorized, DeferredKeys(catalogue, new_keys))
    builder.add_set()
    # Several sets may be rows of one collection. Keys that the database draws for an earlier
    # statement must not be those that rows of a later one have already.
    is_flat = len(authorized) == 1
    return MutationSequence(
        tuple(at_indexes(builder.sets, sorted(builder.sets))),
        tuple(builder.mutations),
        builder.deferred_keys.updates(),
        {} if is_flat else new_keys,
    )


def deletion_sequence(authorized: AuthorizedDelete) -> MutationSequence:
    """Return the sequence that deletes rows, which are in no list of a payload."""
    return MutationSequence(mutations=(Delete(authorized.collection, authorized.keys),))


def _new_keys(authorized: Iterable[AuthorizedSet]) -> dict[str, frozenset[str]]:
    """Return the keys that new rows have before they are written, by collection."""
    new_keys: dict[str, frozenset[str]] = {}
    for authorized_set in authorized:
        collection = authorized_set.collection
        keys = new_keys_of(collection, authorized_set.rows)
        if keys:
            name = collection.name
            # Sets at several paths may be of one collection.
            new_keys[name] = new_keys.get(name, frozenset()) | keys
    return new_keys


class _SequenceBuilder:
    """A sequence in the making.

    Sets are numbered in the order of `walk_sets`, in which `authorized` has them, while mutations
    are added in the order in which they run.
    """

    def __init__(self, authorized: Sequence[AuthorizedSet], deferred_keys: DeferredKeys) -> None:
        self._authorized = authorized
        self._set_count = 0
        self.deferred_keys = deferred_keys
        self.sets: dict[int, RowSet] = {}
        self.mutations: list[Insert | Update | Delete] = []

    def add_set(self, *, owners: int | None = None, references: Iterable[Reference] = ()) -> None:
        """Add the mutations of the next set, and of all that is nested in its rows."""
        number = self._new_number()
        resolved = self._authorized[number].resolved
        all_references = list(references)
        # Before the rows, which point to these objects.
        for to_one in resolved.to_one:
            all_references.append(self._add_to_one(number, to_one))
        rows = _with_collection_fields(self._authorized[number].rows, resolved.to_one)
        self._add_rows(number, rows, owners, tuple(all_references))
        for to_many in resolved.to_many:
            self._add_to_many(number, to_many)

    def _new_number(self) -> int:
        number = self._set_count
        self._set_count += 1
        return number

    def _add_to_one(self, number: int, to_one: ResolvedToOne) -> Reference:
        """Add the objects at a to-one field, and return the reference of the rows to them."""
        # `add_set` gives this number to the set of the objects.
        target = self._set_count
        self.add_set(owners=number)
        return Reference(to_one.link.near, target, to_one.link.far, to_one.pairs)

    def _add_rows(
        self,
        number: int,
        rows: Sequence[ResolvedRow],
        owners: int | None,
        references: tuple[Reference, ...],
    ) -> None:
        authorized = self._authorized[number]
        collection = authorized.collection
        rows = self.deferred_keys.defer(number, collection, rows)
        row_set = RowSet(number, collection, rows, references, owners, authorized.rules)
        self.sets[number] = row_set
        new = [index for index, row in enumerate(rows) if row.is_new]
        if new:
            self.mutations.append(Insert(row_set, new))
        if len(new) < len(rows):
            # A change may have held nothing but references that are deferred now.
            changed = authorized.resolved._replace(rows=rows).changed_numbers
            if changed:
                self.mutations.append(Update(row_set, changed))

    def _add_to_many(self, number: int, to_many: ResolvedToMany) -> None:
        """Add the elements of a to-many field, and the rows that leave its lists."""
        delete = self._authorized[number].deletes.get(to_many.name)
        if to_many.unlinked:
            unlinked = self._new_number()
            self._add_rows(unlinked, self._authorized[unlinked].rows, number, ())
        elif delete:
            owners = {key: RowId(number, to_many.dropped[key]) for key in delete.keys}
            self.mutations.append(Delete(delete.collection, delete.keys, owners))
        far = to_many.link.far
        # The elements are the next set to be numbered.
        elements = self._authorized[self._set_count].rows
        pairs: list[tuple[int, int]] = []
        for owner, element in to_many.pairs:
            # An element that stays in its list needs no reference.
            if any(part.name in elements[element].values for part in far.set_fields):
                # Turned round: it is the element that points to its owner.
                pairs.append((element, owner))
        reference = Reference(far, number, to_many.link.near, pairs)
        self.add_set(owners=number, references=[reference])


def _with_collection_fields(
    rows: Sequence[ResolvedRow], to_one_fields: Iterable[ResolvedToOne]
) -> Sequence[ResolvedRow]:
    """Return rows with the collections of their many-to-any objects in the collection fields."""
    for to_one in to_one_fields:
        field = to_one.link.collection_field
        if not field:
            continue
        rows = list(rows)
        for number, _ in to_one.pairs:
            row = rows[number]
            # A stored row names the collection already: it was parsed by that name.
            if row.is_new and row.values.get(field) is None:
                values = {**row.values, field: to_one.link.target}
                rows[number] = row._replace(values=values)
    return rows
