"""The input of the planner: queries whose names are fields and links; only the guard makes it.

Names are looked up only once, by the guard: values and steps carry the rules of permissions as
finished predicates. Filters are not planned yet: the planner checks whether operators and functions
fit the types.
"""

from __future__ import annotations

from dataclasses import dataclass

from cms.query.language.ast import (
    And,
    Caller,
    CursorPage,
    Or,
    PlainOperand,
    RowOutput,
    SearchWord,
    Window,
)
from cms.query.plan.read_plan import (
    JsonPath,
    JsonPaths,
    LinkStep,
    Predicate,
    VisibleMembers,
    json_path_key,
)
from cms.schema.model import Collection, Field


@dataclass(frozen=True, slots=True)
class GuardedValue:
    """A field, a function of one, or with `counted` the number of items that it leads to.

    In rows that do not fulfil `when` it may not be read (None is all rows). `members` are, of a
    JSON object, the members that may be read; None is all of them. With `at` it is a value inside
    of a JSON field, or all that its paths lead to.
    """

    field: Field
    function: str | None = None
    when: Predicate | None = None
    members: tuple[VisibleMembers, ...] | None = None
    counted: LinkStep | None = None
    at: JsonPath | JsonPaths | None = None

    @property
    def key(self) -> str | None:
        """The key of a value inside of a JSON field as groups have it; None for any other value."""
        if isinstance(self.at, JsonPath):
            return json_path_key(self.field.name, self.at)
        return None


# Filters


@dataclass(frozen=True, slots=True)
class GuardedPath:
    """A path from the caller, `$CURRENT_USER.department.id`.

    The item at its start must fulfil `allowed`; None is no rule.
    """

    start: Caller
    collection: Collection
    allowed: Predicate | None
    steps: tuple[LinkStep, ...]
    value: GuardedValue


GuardedOperand = PlainOperand | GuardedPath


@dataclass(frozen=True, slots=True)
class GuardedTest:
    """An operator with its operands: none, one, or the two of `_between`."""

    operator: str
    operands: tuple[GuardedOperand, ...] = ()


FieldTest = And["FieldTest"] | Or["FieldTest"] | GuardedTest
"""Tests of one and the same value."""


@dataclass(frozen=True, slots=True)
class AtValue:
    """The value of a field fulfils the tests."""

    value: GuardedValue
    test: FieldTest


@dataclass(frozen=True, slots=True)
class AtItems:
    """At least one item (or none, `negated`) at the other end of the step fulfils the filter."""

    step: LinkStep
    inner: GuardedFilter
    negated: bool = False


GuardedFilter = And["GuardedFilter"] | Or["GuardedFilter"] | AtValue | AtItems


# Queries


@dataclass(frozen=True, slots=True)
class GuardedColumn:
    """A value under its key; `own_key` is the key that it has without an alias."""

    key: str
    own_key: str
    value: GuardedValue


@dataclass(frozen=True, slots=True)
class GuardedEmbed:
    """The items that a field leads to; `keys_only` lists them by key."""

    key: str
    own_key: str
    field: Field
    step: LinkStep
    query: GuardedQuery
    keys_only: bool = False


GuardedOutput = GuardedColumn | GuardedEmbed


@dataclass(frozen=True, slots=True)
class GuardedAggregate:
    """A function over a value, or over the rows themselves when `value` is None."""

    function: str
    value: GuardedValue | None


@dataclass(frozen=True, slots=True)
class GuardedGroup:
    key: str
    value: GuardedValue


@dataclass(frozen=True, slots=True)
class GuardedTerm:
    """One term of a sort: a value at the end of a path.

    `key` is that of the group which the term may mean; None behind a path.
    """

    value: GuardedValue
    path: tuple[LinkStep, ...] = ()
    descending: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class AggregateTerm:
    """One term of a sort of groups: an aggregate."""

    aggregate: GuardedAggregate
    descending: bool = False


@dataclass(frozen=True, slots=True)
class RelatedSearch:
    """Values of related items into which a search looks.

    With `is_indexed` an index finds the rows that lead to some of these items.
    """

    step: LinkStep
    values: tuple[GuardedValue, ...]
    is_indexed: bool


@dataclass(frozen=True, slots=True)
class RelevanceTerm:
    """One term of a sort: how well the words of the search fit, the best first."""

    descending: bool = False


AnyTerm = GuardedTerm | AggregateTerm | RelevanceTerm


@dataclass(frozen=True, slots=True)
class GuardedQuery:
    """A query of one collection, with `*` and the order written out.

    Every row must fulfil `rule` (None is no rule) and `base_filter`; `filter` is what the caller
    asks for.
    """

    collection: Collection
    outputs: tuple[GuardedOutput, ...]
    filter: GuardedFilter
    base_filter: GuardedFilter
    rule: Predicate | None
    key_test: GuardedTest | None
    sort: tuple[AnyTerm, ...]
    groups: tuple[GuardedGroup, ...]
    aggregates: tuple[GuardedAggregate, ...]
    search: tuple[SearchWord, ...]
    search_values: tuple[GuardedValue, ...]
    search_items: tuple[RelatedSearch, ...]
    window: Window | None
    counts: tuple[str, ...]
    row_outputs: tuple[RowOutput, ...]
    cursor: CursorPage | None
    highlights: bool


@dataclass(frozen=True, slots=True)
class Guarded:
    """A query that its caller may ask.

    `touched_collections` are the names of all collections that it reads.
    """

    query: GuardedQuery
    touched_collections: frozenset[str] = frozenset()
