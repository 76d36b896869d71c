"""The query of a request as a value: frozen, hashable, without its literals.

Literals stand beside the tree, in `ParsedQuery.literals`, and the tree points to them by `Slot`.
Two requests that differ in literals only have equal trees, and so share one finished statement.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Slot:
    """The index of a literal in `ParsedQuery.literals`."""

    index: int


@dataclass(frozen=True, slots=True)
class Now:
    """$NOW, moved by so many units (`-1`, `hour`)."""

    amount: int = 0
    unit: str = "second"


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal of a rule, the same in every request; a list is a tuple and may hold variables."""

    value: object


@dataclass(frozen=True, slots=True)
class CallerValue:
    """$CURRENT_USER or $CURRENT_ROLE, or what a path leads to from there.

    The guard adds `allowed`: the rule that the item at the start of the path must fulfil.
    """

    name: str
    path: tuple[FieldName, ...] = ()
    allowed: Filter | None = None

    @property
    def collection(self) -> str:
        """The collection in which the path begins."""
        return "system_users" if self.name == "CURRENT_USER" else "system_roles"


Operand = Slot | Constant | Now | CallerValue


@dataclass(frozen=True, slots=True)
class FieldName:
    """A field as a query names it, or a function of one: `title`, `year(published)`.

    A many-to-any field may name the collection that it leads to: `item:headings`. The guard adds
    rules: `when` says in which rows the field may be read, `target_rule` which of the items that it
    leads to, `members` which members of the JSON object in it (None is all of them).
    """

    field: str
    function: str | None = None
    when: Filter | None = None
    target_rule: Filter | None = None
    members: tuple[JsonMembers, ...] | None = None

    @property
    def base_field(self) -> str:
        """The field without the collection that it leads to."""
        return self.field.partition(":")[0]

    @property
    def key(self) -> str:
        """The key in the answer."""
        return f"{self.field}_{self.function}" if self.function else self.base_field


# Filters: one language for clients' filters and permissions' rules


@dataclass(frozen=True, slots=True)
class And:
    items: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple[Filter, ...]


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


@dataclass(frozen=True, slots=True)
class AboutItem:
    """A row of the history is about an item of the collection that fulfils the rule.

    A revision also has to hold the item in a state that fulfils it. Only the guard makes this node.
    """

    collection: str
    rule: Filter


Filter = And | Or | AtField | Some | OperatorTest | AboutItem


@dataclass(frozen=True, slots=True)
class JsonMembers:
    """Names of members of a JSON object, which are there in rows that fulfil `when`."""

    when: Filter
    names: tuple[str, ...]


EVERYTHING = And(())
NOTHING = Or(())


def both(first: Filter | None, second: Filter | None) -> Filter:
    """Return the filter that holds where both hold; None holds everywhere."""
    if first is None or first == EVERYTHING:
        return EVERYTHING if second is None else second
    if second is None or second == EVERYTHING:
        return first
    return And((first, second))


# Queries


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over the values of a field, or over the rows themselves when the field is `*`."""

    function: str
    name: FieldName


@dataclass(frozen=True, slots=True)
class SortTerm:
    """One term of a sort: a path of fields, or an aggregate."""

    path: tuple[FieldName, ...]
    descending: bool = False
    aggregate: Aggregate | None = None


@dataclass(frozen=True, slots=True)
class Pick:
    """One requested field; `*` stands for all. `nested` is the query of the items it leads to."""

    key: str
    name: FieldName
    nested: Query | None = None


STAR = Pick("*", FieldName("*"))
INTERNAL_KEY = ""
"""The key under which the store itself picks a primary key, as PostgreSQL's text.

No client can name it.
"""
INTERNAL_VERSION = "\0"
"""The key under which it picks the version of a row, beside a primary key only.

The version tells one state of the row from the next.
"""


@dataclass(frozen=True, slots=True)
class Window:
    """A page of the rows: `limit` rows behind the first `offset`, all within `row_limit`.

    `row_limit` is a round number that is written into the statement: with a limit that it does not
    know PostgreSQL guesses so badly that it plans every execution anew. Without `limit` the page is
    the first `row_limit` rows.
    """

    row_limit: int | None
    limit: Slot | None = None
    offset: Slot | None = None


ONE_ROW = Window(1)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of one collection, or of the items at the other end of a relation.

    `key_test` is the store's own test of the primary key, for reads by key. `base_filter` is the
    store's own filter, for reads that treat a part of the rows as if it were all: `total_count`
    counts no others. The guard adds the last three: `allowed`, the rule that every row must fulfil;
    the fields that a search looks into; and whether items are listed by key.
    """

    picks: tuple[Pick, ...] = (STAR,)
    filter: Filter = EVERYTHING
    sort: tuple[SortTerm, ...] = ()
    window: Window | None = None
    search: Slot | None = None
    aggregates: tuple[Aggregate, ...] = ()
    groups: tuple[FieldName, ...] = ()
    counts: tuple[str, ...] = ()
    deep: tuple[tuple[str, Query], ...] = ()
    """Queries of fields that only `*` names."""
    checked_only: tuple[Pick, ...] = ()
    """Names of `fields`, `deep` and `alias` that the answer does not show.

    The caller must see them all the same.
    """
    key_test: OperatorTest | None = None
    base_filter: Filter = EVERYTHING
    allowed: Filter = EVERYTHING
    search_fields: tuple[FieldName, ...] = ()
    keys_only: bool = False


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed request: the tree, and the literals that its slots point to."""

    query: Query
    literals: tuple[object, ...] = field(default=())
