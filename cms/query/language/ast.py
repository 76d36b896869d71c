"""The query of a request as a value: frozen, hashable, without its literals.

Literals stand beside the tree, in `ParsedQuery.literals`, and the tree points to them by `Slot`.
Two requests that differ in literals only have equal trees, and so share one finished statement.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, StrEnum, auto
from typing import Generic, TypeVar

from cms.schema.names import FieldName, FieldPath
from cms.schema.system import ROLES, USERS

# Every node is a frozen dataclass with tuples inside: a tree is the key of the plan cache, and must
# hash and compare by value.
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slot:
    """The index of a literal in `ParsedQuery.literals`."""

    index: int


@dataclass(frozen=True, slots=True)
class Now:
    """$NOW, moved by so many units (`-1`, `hour`)."""

    amount: int = 0
    unit: str = "second"


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal of a rule, the same in every request; a list is a tuple and may hold variables.

    Constants are equal if their values have one type as well: rules are told apart by them, and
    inside of JSON the number 1 is not true.
    """

    value: object

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return False
        # Nearly all are the same object, or differ already for Python.
        if self.value is other.value:
            return True
        return self.value == other.value and _typed(self.value) == _typed(other.value)

    def __hash__(self) -> int:
        return hash(self.value)


def _typed(value: object) -> tuple[object, ...]:
    """Return a value with its type: to Python true is the number 1, and so is 1.00."""
    if isinstance(value, tuple):
        return tuple(map(_typed, value))
    # As texts, numbers with other zeros at their end are others.
    if isinstance(value, Decimal):
        return Decimal, str(value)
    return type(value), value


class Caller(StrEnum):
    """Where a path from the caller begins."""

    USER = "CURRENT_USER"
    ROLE = "CURRENT_ROLE"

    @property
    def collection(self) -> str:
        """The collection in which the path begins."""
        if self is Caller.USER:
            return USERS
        return ROLES


@dataclass(frozen=True, slots=True)
class CallerKey:
    """$CURRENT_USER or $CURRENT_ROLE: the key of the caller's own row."""

    start: Caller


@dataclass(frozen=True, slots=True)
class CallerValue:
    """The value at the end of a path from the caller's own row: `$CURRENT_USER.department.id`."""

    start: Caller
    path: FieldPath


# Requests have `Slot`, rules and the service's own conditions have `Constant`, and both may have
# variables. These are resolved when a statement is bound, so that one statement serves every moment
# and every caller.
PlainOperand = Slot | Constant | Now | CallerKey
"""An operand without names."""
Operand = PlainOperand | CallerValue
"""An operand as it was written: the names in it may be hidden or missing."""


# Filters: one language for clients' filters and permissions' rules
#
# {"author": {"name": {"_eq": "Ann"}}} is
# AtField(author, AtField(name, OperatorTest("_eq", (Slot(0),))))


@dataclass(frozen=True, slots=True)
class And(Generic[T]):
    items: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Or(Generic[T]):
    items: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class AtField:
    """The inner filter holds for the named field, or for the item that the field leads to."""

    name: FieldName
    inner: Filter


@dataclass(frozen=True, slots=True)
class Some:
    """The inner filter holds for at least one related item, or for none when `negated`."""

    inner: Filter
    negated: bool = False


@dataclass(frozen=True, slots=True)
class OperatorTest:
    """An operator with its operands: none, one, or the two of `_between`."""

    operator: str
    operands: tuple[Operand, ...] = ()


Filter = And["Filter"] | Or["Filter"] | AtField | Some | OperatorTest
"""A filter as it was written: its names may be hidden or missing."""

# An empty AND is true and an empty OR is false, as in logic: a permission whose list of rules is
# empty lets nothing through.
EVERYTHING: And[Filter] = And(())
NOTHING: Or[Filter] = Or(())


# Queries


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over the values of a field, or over the rows themselves when `name` is None."""

    function: str
    name: FieldName | None


@dataclass(frozen=True, slots=True)
class SortTerm:
    """One term of a sort: a path of fields, or an aggregate."""

    path: FieldPath
    descending: bool = False
    aggregate: Aggregate | None = None


RELEVANCE = "_relevance"
"""The term of a sort by how well the words of the search fit; ascending begins with the best."""


HIGHLIGHTS = "_highlights"
"""The key under which an item shows where the words of a search are."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One requested field under its key. `nested` is the query of the items it leads to."""

    key: str
    name: FieldName
    nested: Query | None = None


@dataclass(frozen=True, slots=True)
class Star:
    """All fields. `nested` is the query of the items that they lead to: `*.*`."""

    nested: Query | None = None


class RowOutput(Enum):
    """Columns that the service reads of each row for itself. No client can ask for them."""

    KEY = auto()
    """The primary key, as PostgreSQL's text."""
    VERSION = auto()
    """The version of the row, which each change replaces; only of tables with a primary key."""


AnyPick = Pick | Star


@dataclass(frozen=True, slots=True)
class SearchWord:
    """A word or a phrase that is searched.

    No index helps to find a short one as a part of others.
    """

    text: Slot
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A page of the rows: `limit` rows behind the first `offset`, all within `row_limit`.

    `row_limit` is a round number that is written into the statement: with a limit that it does not
    know PostgreSQL guesses so badly that it plans every execution anew. Without `limit` the page is
    the first `row_limit` rows. `page_limit` is a round number that covers the page alone, for a
    page that is small beside what it skips.
    """

    row_limit: int | None
    limit: Slot | None = None
    offset: Slot | None = None
    page_limit: int | None = None


ONE_ROW = Window(1)


@dataclass(frozen=True, slots=True)
class CursorPage:
    """A page that comes with the cursor of the next one.

    It shows `size` rows, None is all of them. `token` is that of the page before, as it was sent.
    Once it is opened, `start` holds its content and `token` is None.
    """

    size: Slot | None
    token: Slot | None = None
    start: CursorStart | None = None


@dataclass(frozen=True, slots=True)
class CursorStart:
    """The last row of the page before: its values in the terms of the order, None for null.

    `order` is a digest of these terms.
    """

    values: tuple[Slot | None, ...]
    order: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query of one collection, or of the items at the other end of a relation.

    `key_test` is the store's own test of the primary key, for reads by key. `base_filter` is the
    store's own filter, for reads that treat a part of the rows as if it were all: `total_count`
    counts no others.
    """

    picks: tuple[AnyPick, ...] = (Star(),)
    filter: Filter = EVERYTHING
    sort: tuple[SortTerm, ...] = ()
    window: Window | None = None
    search: tuple[SearchWord, ...] = ()
    """Every word must be found, each in any of the fields."""
    highlights: bool = False
    """Whether items show where the words are; only in queries at the top."""
    aggregates: tuple[Aggregate, ...] = ()
    groups: tuple[FieldName, ...] = ()
    counts: tuple[str, ...] = ()
    deep: tuple[DeepQuery, ...] = field(default=(), hash=False)
    """Queries of fields that only `*` names.

    `checked_only` has them as well: a hash of both would take twice as long for each level.
    """
    checked_only: tuple[Pick, ...] = ()
    """Names of `fields`, `deep` and `alias` that the answer does not show.

    The guard checks them like all others.
    """
    key_test: OperatorTest | None = None
    base_filter: Filter = EVERYTHING
    row_outputs: tuple[RowOutput, ...] = ()
    """Only in queries of items at the top: groups are no rows."""
    cursor: CursorPage | None = None


@dataclass(frozen=True, slots=True)
class DeepQuery:
    """The query of the items that a field leads to, or those of one target of a many-to-any."""

    key: str
    target: str | None
    query: Query


def has_search(query: Query) -> bool:
    """Tell whether a query searches at any of its levels."""
    if query.search:
        return True
    # Without `deep`, which `checked_only` repeats: both would take twice as long for each level.
    nested = [pick.nested for pick in (*query.picks, *query.checked_only) if pick.nested]
    return any(map(has_search, nested))


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed request: the tree, and the literals that its slots point to.

    It is `of_one_item` where the answer is a single item, whose lists come whole.
    """

    query: Query
    literals: tuple[object, ...] = field(default=())
    of_one_item: bool = False


EMPTY_QUERY = ParsedQuery(Query())
"""The query of a request that asks for nothing in particular: all fields."""


# The kinds of tests in a filter at a relation: of the key, of the related item, quantifiers


def has_key_test(filter: Filter) -> bool:
    """Tell whether a filter at a relation tests the key itself."""
    match filter:
        case And(items) | Or(items):
            # {"author": {"_in": [1, 2]}} is about the key, {"author": {"name": …}} about the item
            # behind it. One filter may hold both.
            return any(map(has_key_test, items))
        case AtField() | Some():
            return False
        case OperatorTest():
            return True


def has_quantifier(filter: Filter) -> bool:
    """Tell whether a filter at a relation has `_some` or `_none`, alone or in groups."""
    match filter:
        case And(items) | Or(items):
            return any(map(has_quantifier, items))
        case Some():
            return True
        case AtField() | OperatorTest():
            return False


def has_item_test(filter: Filter) -> bool:
    """Tell whether a filter at a relation tests the related item, and not only the key."""
    match filter:
        case And(items) | Or(items):
            return any(map(has_item_test, items))
        case AtField() | Some():
            return True
        case OperatorTest():
            return False
