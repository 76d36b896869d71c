"""A read after planning: every name is a column, every operand a placeholder."""

from __future__ import annotations

from dataclasses import dataclass

from cms.query.language.ast import RowOutput, Slot
from cms.query.language.operators import Operator
from cms.query.language.parameters import RANKED
from cms.query.plan.bindings import Placeholder
from cms.query.plan.count_sources import CountEstimate
from cms.query.plan.document_paths import JsonPath, JsonPaths, json_path_key
from cms.query.plan.links import Link
from cms.schema.model import Collection, Field
from cms.schema.types.field_type import FieldFunction, FieldType, Parse, Trait
from cms.schema.types.json_members import JSON_MEMBER
from cms.schema.types.numbers import INTEGER


@dataclass(frozen=True, slots=True)
class Value:
    """A column, a function of one, the number of related items (`step`), or a `relevance`.

    In rows that do not fulfil `when` the value is null, wherever it is used. `members` are, of a
    JSON object, the members that may be read; None is all of them. With `at` it is a value inside
    of a JSON field, or all that its paths lead to.
    """

    field: Field
    function: FieldFunction | None = None
    step: LinkStep | None = None
    when: Predicate | None = None
    members: tuple[VisibleMembers, ...] | None = None
    at: JsonPath | JsonPaths | None = None
    relevance: Relevance | None = None

    @property
    def type(self) -> FieldType:
        """The type of the value; functions and counts are whole numbers."""
        if self.at is not None:
            return JSON_MEMBER
        # Whatever the type of the column: a year and a number of items are counted in integers.
        if self.is_computed:
            return INTEGER
        return self.field.type

    @property
    def is_computed(self) -> bool:
        """Whether the value is another than the column's own."""
        parts = (self.function, self.step, self.at, self.relevance)
        return any(part is not None for part in parts)

    @property
    def key(self) -> str:
        """The key under which groups and aggregates show the value."""
        if isinstance(self.at, JsonPath):
            return json_path_key(self.field.name, self.at)
        return self.field.name

    @property
    def cast(self) -> str:
        """The type that an operand is cast to."""
        # A `real` column holds 0.1 in 32 bits, which equals only an operand rounded likewise.
        return self.type.rounded_cast or self.type.cast

    def own_cast(self, trait: Trait | None) -> str:
        """The type of operands if the column's own type compares, empty for all other values."""
        column = self.field.column
        if self.is_computed or column is None or trait not in self.type.own_comparisons:
            return ""
        return self.type.own_cast or column.cast

    @property
    def index_cast(self) -> str:
        """The type that lists of operands are cast to: the column's own, for its indexes."""
        if self.is_computed:
            return self.cast
        return self.type.index_cast or self.cast

    @property
    def is_small_integer(self) -> bool:
        """Whether the value is a whole number of a smaller type than its operands."""
        return bool(self.type.index_cast)

    @property
    def parse(self) -> Parse:
        """The parser of operands; it refuses what the cast in the statement would fail for."""
        return self.type.parse_rounded or self.type.parse


@dataclass(frozen=True, slots=True)
class Relevance:
    """How well a row fits the words of a search: for each word, the values that may hold it."""

    words: tuple[tuple[SearchMatch, ...], ...]


@dataclass(frozen=True, slots=True)
class VisibleMembers:
    """Names of members of a JSON object, which may be read in rows that fulfil `when`."""

    when: Predicate
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkStep:
    """A link as the caller may follow it.

    It leads from rows that fulfil `when` to rows that fulfil `allowed`.
    """

    link: Link
    when: Predicate | None = None
    allowed: Predicate | None = None


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds; without parts that is every row (`EVERY_ROW`)."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds; without parts that is no row (`NO_ROW`)."""

    items: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class CallerPath:
    """The value at the end of a path from the caller, whose row has the key `start`."""

    collection: Collection
    start: Placeholder
    allowed: Predicate | None
    steps: tuple[LinkStep, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class TypedTest:
    """An operator that fits the type of the value, with operands of that type."""

    value: Value
    operator: Operator
    operands: tuple[Placeholder | CallerPath, ...]


@dataclass(frozen=True, slots=True)
class JsonOperand:
    """The operand of a test of a value inside of a JSON field, and its type in PostgreSQL."""

    value: Placeholder
    cast: str


@dataclass(frozen=True, slots=True)
class JsonTest:
    """A test of a value inside of a JSON field; `sql` is a template over it and the operands."""

    value: Value
    sql: str
    operands: tuple[JsonOperand, ...]
    takes_index: bool
    """Whether an index of the path serves the test."""


@dataclass(frozen=True, slots=True)
class Exists:
    """At least one item (or none, `negated`) at the other end of the step fulfils `where`.

    With `per_row` it is looked up for each row: PostgreSQL would otherwise read the whole
    collection for a page of few rows. With `keys_first` the items are looked up before the rows,
    which an index then finds, also as an alternative to other conditions.
    """

    step: LinkStep
    where: Predicate
    negated: bool = False
    per_row: bool = False
    keys_first: bool = False


@dataclass(frozen=True, slots=True)
class SearchMatch:
    """A search word in one field: contained in a text, equal to a number or a UUID.

    No index helps to find a text that contains a short word.
    """

    value: Value
    word: Placeholder
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class RevisionItem:
    """The item in a revision fulfils `where`, which reads these columns of it."""

    collection: Collection
    columns: tuple[str, ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class SharedMask:
    """A rule of fields that was tested once for the row; its result has the column `name`."""

    name: str


Predicate = All | AnyOf | TypedTest | JsonTest | Exists | SearchMatch | RevisionItem | SharedMask

EVERY_ROW = All(())
NO_ROW = AnyOf(())


def both(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """Return the condition that holds where both hold; None holds in every row."""
    conditions: list[Predicate] = []
    for condition in (first, second):
        if condition is not None and condition != EVERY_ROW:
            conditions.append(condition)
    match conditions:
        case []:
            return None
        case [condition]:
            return condition
        case _:
            return All(tuple(conditions))


@dataclass(frozen=True, slots=True)
class Order:
    """A value to sort by, at the end of a path.

    Of the items of a list it is the smallest that is not null, and `descending` the largest.
    """

    value: Value
    path: tuple[LinkStep, ...] = ()
    descending: bool = False


@dataclass(frozen=True, slots=True)
class ValueOutput:
    """A value under its key."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class RowValue:
    """A column that the service itself reads of each row, as text."""

    output: RowOutput
    value: Value


@dataclass(frozen=True, slots=True)
class Embed:
    """Related items: one object or an array; `keys_only` shows keys instead of objects."""

    key: str
    step: LinkStep
    plan: ReadPlan
    keys_only: bool = False


@dataclass(frozen=True, slots=True)
class EmbedChoice:
    """A many-to-any field: the item that the row names, or null.

    Of an item of any other collection it is the key, `other_key`.
    """

    key: str
    embeds: tuple[Embed, ...]
    other_key: Value


Output = ValueOutput | Embed | EmbedChoice


@dataclass(frozen=True, slots=True)
class Group:
    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class AggregateValue:
    """An aggregate of a value, or of the rows themselves when the value is None."""

    function: str
    value: Value | None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Grouping:
    groups: tuple[Group, ...]
    aggregates: tuple[AggregateValue, ...]
    order: tuple[Order | AggregateValue, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A window with its numbers as parameters; `has_next_row` adds the row behind it."""

    row_limit: int | None
    limit: Slot | None = None
    offset: Slot | None = None
    page_limit: int | None = None
    has_next_row: bool = False


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a page needs for the cursor of the next one.

    It shows `size` rows and reads one more. It begins behind the row whose terms of the order have
    the values `starts`, of which None is null; without `starts` it is the first page.

    `terms` are the terms whose values the cursor of the next page holds, and `order` is a digest of
    them. Without a primary key there are none: no values tell which of equal rows is the last.
    """

    size: Slot | None
    starts: tuple[Placeholder | None, ...]
    terms: tuple[Order, ...]
    order: str


@dataclass(frozen=True, slots=True)
class MaskColumn:
    """A column beside those of the collection: the result of a rule that several fields share."""

    name: str
    rule: Predicate


@dataclass(frozen=True, slots=True)
class Highlights:
    """Where the words of a search are, as items show it: the values that may hold each word."""

    words: tuple[tuple[SearchMatch, ...], ...]

    @property
    def fields(self) -> tuple[tuple[SearchMatch, ...], ...]:
        """For each searched field, the words that may be in it."""
        return tuple(zip(*self.words, strict=True))


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One level of a read: the rows that the caller may see (`allowed`) and asks for (`where`)."""

    collection: Collection
    outputs: tuple[Output, ...]
    allowed: Predicate
    where: Predicate
    order: tuple[Order, ...]
    page: Page | None
    grouping: Grouping | None = None
    counts: tuple[str, ...] = ()
    renamed: bool = False
    """Whether a key of the answer is no name of the catalogue, or too long for a column's name."""
    row_values: tuple[RowValue, ...] = ()
    """They stand behind the outputs, and only at the top of a read."""
    cursor: Cursor | None = None
    highlights: Highlights | None = None
    """Only at the top of a read."""
    count_estimate: CountEstimate | None = None
    is_found_by_index: bool = False
    """Of a page by relevance, whether an index finds a word of the search."""
    masks: tuple[MaskColumn, ...] = ()
    """Rules that outputs and groups name as `SharedMask` (cms/query/plan/shared_masks.py)."""

    @property
    def is_ranked(self) -> bool:
        """Whether it is a page by relevance, for which only the first rows are ranked."""
        return RANKED in self.counts
