"""Plans of writes: what is pointed to first, then the rows, then what belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cms.access.guarded_rules import NO_ROWS
from cms.items.write.run.mutation_sequence import mutation_sequence
from cms.items.write.stages.mutations import (
    AuthorizedDelete,
    AuthorizedSet,
    Delete,
    Insert,
    MutationSequence,
    Reference,
    RowId,
    Update,
)
from cms.items.write.stages.parsed import PENDING_KEY, Pairs
from cms.items.write.stages.problems import PayloadPosition
from cms.items.write.stages.resolved_rows import (
    ResolvedRow,
    ResolvedSet,
    ResolvedToMany,
    ResolvedToOne,
    walk_sets,
)
from cms.query.plan.links import Link, link_of
from cms.schema.model import Catalogue, Collection
from tests.unit.library import AUTHORS, BOOKS, LIBRARY, PAGES, TOPICS


def new(**values: str | None) -> ResolvedRow:
    """A row that is not stored."""
    return ResolvedRow(values, values, PayloadPosition(), frozenset(), None, True, None)


def stored(key: str | None, **values: str | None) -> ResolvedRow:
    """A row that is stored; None is the key of one that is missing."""
    return ResolvedRow(values, values, PayloadPosition(), frozenset(), None, False, key)


def link(of: Collection, name: str, target: str | None = None) -> Link:
    step = link_of(LIBRARY, of, name, target)
    assert step
    return step


def objects(
    of: Collection, name: str, targets: ResolvedSet, pairs: Pairs, *, any_of: str | None = None
) -> ResolvedToOne:
    """Objects at a to-one field; `any_of` is their collection at a many-to-any field."""
    return ResolvedToOne(name, link(of, name, any_of), targets, pairs)


def pages(
    *rows: ResolvedRow,
    pairs: Pairs,
    dropped: dict[str, int] | None = None,
    unlinked: Sequence[ResolvedRow] = (),
) -> ResolvedToMany:
    """The pages of books: `dropped` are keys that leave, with the books; `unlinked` stay."""
    elements = ResolvedSet(PAGES, 1, rows)
    leaving = ResolvedSet(PAGES, 1, unlinked) if unlinked else None
    return ResolvedToMany("pages", link(BOOKS, "pages"), elements, pairs, dropped or {}, leaving)


def sequence_of(root: ResolvedSet, catalogue: Catalogue = LIBRARY) -> MutationSequence:
    return mutation_sequence(catalogue, [authorized_set(each) for each in walk_sets(root)])


def authorized_set(resolved: ResolvedSet) -> AuthorizedSet:
    deletes = {
        to_many.name: AuthorizedDelete(to_many.elements.collection, to_many.deleted_keys)
        for to_many in resolved.to_many
        if to_many.deleted_keys
    }
    return AuthorizedSet(resolved, resolved.rows, deletes=deletes)


def steps(sequence: MutationSequence) -> list[tuple[object, ...]]:
    """Return the mutations by kind, collection, and the numbers or keys of their rows."""
    described: list[tuple[object, ...]] = []
    for mutation in sequence.mutations:
        if isinstance(mutation, Delete):
            described.append(("delete", mutation.collection.name, list(mutation.keys)))
        else:
            kind = "insert" if isinstance(mutation, Insert) else "update"
            assert isinstance(mutation, Insert | Update)
            name = mutation.target.collection.name
            described.append((kind, name, list(mutation.numbers)))
    return described


# One set


def test_new_rows_are_inserted_before_stored_ones_are_updated() -> None:
    sequence = sequence_of(ResolvedSet(BOOKS, 0, [stored("1", title="a"), new(id="5"), new()]))
    assert steps(sequence) == [("insert", "books", [1, 2]), ("update", "books", [0])]
    (books,) = sequence.sets
    assert (books.number, books.references, books.owners) == (0, (), None)
    assert (sequence.deferred, sequence.new_keys) == ((), {})


def test_an_item_of_the_call_is_updated_though_nothing_was_sent_for_it() -> None:
    sequence = sequence_of(ResolvedSet(BOOKS, 0, [stored("1")]))
    assert steps(sequence) == [("update", "books", [0])]


def test_a_related_item_that_was_only_named_is_left_alone() -> None:
    authors = ResolvedSet(AUTHORS, 1, [stored("7"), stored("8", name="x")])
    by_both = objects(BOOKS, "author", authors, [(0, 0), (1, 1)])
    sequence = sequence_of(ResolvedSet(BOOKS, 0, [new(), new()], to_one=(by_both,)))
    assert steps(sequence) == [("update", "authors", [1]), ("insert", "books", [0, 1])]


def test_the_rules_of_rows_go_with_them() -> None:
    books = ResolvedSet(BOOKS, 0, [new(), new()])
    sequence = mutation_sequence(LIBRARY, [AuthorizedSet(books, books.rows, {1: NO_ROWS})])
    assert sequence.sets[0].rules == {1: NO_ROWS}


def test_a_row_that_is_missing_is_not_updated() -> None:
    assert steps(sequence_of(ResolvedSet(BOOKS, 0, [stored(None, title="a")]))) == []


# Related rows


def test_what_rows_point_to_is_written_first_and_gives_them_its_keys() -> None:
    authors = ResolvedSet(AUTHORS, 1, [new(name="x")])
    by_it = objects(BOOKS, "author", authors, [(0, 0), (1, 0)])
    books = [new(author=PENDING_KEY), new(author=PENDING_KEY)]
    sequence = sequence_of(ResolvedSet(BOOKS, 0, books, to_one=(by_it,)))
    assert steps(sequence) == [("insert", "authors", [0]), ("insert", "books", [0, 1])]
    root, target = sequence.sets
    assert (root.collection, target.collection) == (BOOKS, AUTHORS)
    assert root.references == (
        Reference(BOOKS.fields["author"], target.number, AUTHORS.key, [(0, 0), (1, 0)]),
    )
    assert target.owners == root.number


def test_lists_are_written_after_their_owners_and_take_their_keys() -> None:
    listed = pages(new(book=PENDING_KEY), new(book=PENDING_KEY), pairs=[(0, 0), (1, 1)])
    sequence = sequence_of(ResolvedSet(BOOKS, 0, [new(), new()], to_many=(listed,)))
    assert steps(sequence) == [("insert", "books", [0, 1]), ("insert", "pages", [0, 1])]
    root, elements = sequence.sets
    # A reference names the row that points first: here the element.
    assert elements.references == (
        Reference(PAGES.fields["book"], root.number, BOOKS.key, [(0, 0), (1, 1)]),
    )
    assert elements.owners == root.number


def test_an_element_that_stays_in_its_list_takes_no_key() -> None:
    listed = pages(stored("5", text="x"), stored("6", book=PENDING_KEY), pairs=[(0, 0), (0, 1)])
    sequence = sequence_of(ResolvedSet(BOOKS, 0, [stored("1")], to_many=(listed,)))
    assert sequence.sets[1].references == (Reference(PAGES.fields["book"], 0, BOOKS.key, [(1, 0)]),)


def test_rows_that_leave_a_list_are_deleted_before_new_ones_take_their_place() -> None:
    listed = pages(new(book=PENDING_KEY), pairs=[(1, 0)], dropped={"5": 0, "6": 1})
    sequence = sequence_of(ResolvedSet(BOOKS, 0, [stored("1"), stored("2")], to_many=(listed,)))
    assert steps(sequence) == [
        ("update", "books", [0, 1]),
        ("delete", "pages", ["5", "6"]),
        ("insert", "pages", [0]),
    ]
    delete = sequence.mutations[1]
    assert isinstance(delete, Delete)
    assert delete.owners == {"5": RowId(0, 0), "6": RowId(0, 1)}


def test_rows_that_are_unlinked_change_before_new_ones_take_their_place() -> None:
    listed = pages(
        new(book=PENDING_KEY), pairs=[(0, 0)], dropped={"5": 0}, unlinked=[stored("5", book=None)]
    )
    sequence = sequence_of(ResolvedSet(BOOKS, 0, [stored("1")], to_many=(listed,)))
    assert steps(sequence) == [
        ("update", "books", [0]),
        ("update", "pages", [0]),
        ("insert", "pages", [0]),
    ]
    assert [(each.number, each.owners) for each in sequence.sets] == [(0, None), (1, 0), (2, 0)]


def test_the_order_holds_at_every_level() -> None:
    agents = ResolvedSet(AUTHORS, 2, [new(name="agent")])
    with_agent = objects(AUTHORS, "agent", agents, [(0, 0)])
    authors = ResolvedSet(AUTHORS, 1, [new(agent=PENDING_KEY)], to_one=(with_agent,))
    by_it = objects(BOOKS, "author", authors, [(0, 0)])
    listed = pages(new(book=PENDING_KEY), pairs=[(0, 0)])
    sequence = sequence_of(
        ResolvedSet(BOOKS, 0, [new(author=PENDING_KEY)], to_one=(by_it,), to_many=(listed,))
    )
    assert steps(sequence) == [
        ("insert", "authors", [0]),
        ("insert", "authors", [0]),
        ("insert", "books", [0]),
        ("insert", "pages", [0]),
    ]
    # Sets have the numbers in which a walk from the root meets them.
    assert [each.number for each in sequence.sets] == [0, 1, 2, 3]
    written = [step.target.number for step in sequence.mutations if isinstance(step, Insert)]
    assert written == [2, 1, 0, 3]


def test_a_new_row_names_the_collection_of_its_many_to_any_object() -> None:
    topics = ResolvedSet(TOPICS, 1, [new(name="x")])
    about = objects(BOOKS, "topic", topics, [(0, 0), (1, 0), (2, 0)], any_of="topics")
    books = [
        new(topic=PENDING_KEY),
        new(topic=PENDING_KEY, topic_kind="authors"),
        stored("3", topic=PENDING_KEY),
    ]
    sequence = sequence_of(ResolvedSet(BOOKS, 0, books, to_one=(about,)))
    kinds = [row.values.get("topic_kind") for row in sequence.sets[0].rows]
    assert kinds == ["topics", "authors", None]


# Keys that new rows bring


def sequels(*rows: ResolvedRow) -> ResolvedSet:
    """Books in the list of an author, which are rows of a nested set."""
    books = ResolvedSet(BOOKS, 1, rows)
    pairs = [(0, number) for number in range(len(rows))]
    listed = ResolvedToMany("books", link(AUTHORS, "books"), books, pairs, {}, None)
    return ResolvedSet(AUTHORS, 0, [stored("1")], to_many=(listed,))


def test_new_keys_are_reported_by_collection_where_several_sets_are_written() -> None:
    authors = ResolvedSet(AUTHORS, 1, [new(id="7"), stored("8", name="x"), new(name="y")])
    by_them = objects(BOOKS, "author", authors, [(0, 0), (1, 1), (2, 2)])
    sequence = sequence_of(ResolvedSet(BOOKS, 0, [new(id="1"), new(), new()], to_one=(by_them,)))
    assert sequence.new_keys == {"authors": {"7"}, "books": {"1"}}


def test_a_reference_to_a_row_of_a_later_statement_is_set_at_the_end() -> None:
    sequence = sequence_of(sequels(new(id="1", sequel="2"), new(id="2")))
    _, books = sequence.sets
    assert books.rows[0].values == {"id": "1", "sequel": None}
    (deferred,) = sequence.deferred
    assert deferred.collection == BOOKS
    assert deferred.values == {RowId(books.number, 0): {"sequel": "2"}}


def test_rows_of_one_statement_may_refer_to_each_other() -> None:
    sequence = sequence_of(sequels(new(id="1", sequel="2"), new(id="2", sequel="1")))
    assert sequence.deferred == ()
    assert sequence.sets[1].rows[0].values == {"id": "1", "sequel": "2"}


def test_a_reference_to_a_row_that_is_written_already_is_not_deferred() -> None:
    assert sequence_of(sequels(new(id="2"), new(id="1", sequel="2"))).deferred == ()
    # New rows come before stored ones.
    assert sequence_of(sequels(stored("1", sequel="2"), new(id="2"))).deferred == ()


def test_nothing_is_left_of_a_change_that_is_deferred_whole() -> None:
    """An author's agent is a new author, who belongs to a book that is written later."""
    agents = ResolvedSet(AUTHORS, 2, [new(id="9")])
    listed_books = ResolvedSet(
        BOOKS,
        1,
        [new(author=PENDING_KEY)],
        to_one=(objects(BOOKS, "author", agents, [(0, 0)]),),
    )
    listed = ResolvedToMany("books", link(AUTHORS, "books"), listed_books, [], {}, None)
    root = ResolvedSet(AUTHORS, 1, [stored("1", agent="9")], to_many=(listed,))
    sequence = sequence_of(root)
    assert steps(sequence) == [("insert", "authors", [0]), ("insert", "books", [0])]
    assert [dict(update.values) for update in sequence.deferred] == [{RowId(0, 0): {"agent": "9"}}]


def test_a_new_row_keeps_a_reference_that_its_column_requires() -> None:
    field = BOOKS.fields["sequel"]
    assert field.column
    required = replace(field, column=replace(field.column, is_nullable=False))
    books = replace(BOOKS, fields={**BOOKS.fields, "sequel": required})
    catalogue = replace(LIBRARY, collections={**LIBRARY.collections, "books": books})
    root = sequels(new(id="1", sequel="2"), new(id="2"))
    elements = root.to_many[0].elements._replace(collection=books)
    strict = root._replace(to_many=(replace(root.to_many[0], elements=elements),))
    sequence = sequence_of(strict, catalogue)
    assert sequence.deferred == ()
    assert sequence.sets[1].rows[0].values["sequel"] == "2"
