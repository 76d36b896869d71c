"""A field type: everything that the service knows about it, as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

Parse = Callable[[object], str]
"""Turns a value of a client into the text of a parameter; ValueError for a value that is none."""

RangeTest = Callable[[str], bool]
"""Tells whether a parsed value is in the range of a column."""

RangeTestOf = Callable[[int | None, int | None], RangeTest | None]
"""Returns the test of a column by its precision and scale, or None for a column without a range."""


# Subclasses of ValueError, so that callers who need no code of their own catch one class.
# cms/schema/payload.py gives them VALUE_OUT_OF_RANGE and VALUE_TOO_LONG.
class OutOfRange(ValueError):
    """A value of the right kind that its type cannot hold."""

    def __init__(self, subject: str = "it") -> None:
        super().__init__(f"{subject} is out of range")


class TooLong(ValueError):
    """A text with more characters than its column takes."""


class Trait(StrEnum):
    """A capability of the values of a type; operators and aggregates name one."""

    NULL = "null"
    EQUALITY = "equality"
    CASE = "equality without regard to case"
    ORDER = "comparisons, smallest and largest value"
    SORTING = "sorting and grouping of rows, which PostgreSQL has an order for"
    ARITHMETIC = "sums, averages, positions"
    PARTS = "texts and lists that contain something"
    PATTERNS = "texts that begin and end with something"
    REGEX = "texts that match a regular expression"
    EMPTINESS = "values that are empty without being null"
    JSON = "objects and arrays"
    GEOMETRY = "shapes that intersect"


class Search(StrEnum):
    """How a search looks for a word in a field."""

    NONE = "not at all"
    EQUAL = "for the value that the word is"
    CONTAINED = "for the word within a text"


class Cell(StrEnum):
    """The content of cells in imported CSV."""

    TEXT = "text"
    NUMBER = "a number"
    JSON = "JSON"
    JSON_OR_TEXT = "an array or an object as JSON, other values as text"


class ValueSize(StrEnum):
    """How long a value may be that an answer shows, if its column sets no limit."""

    SHORT = "a few bytes"
    DIGITS = "the digits of a number"
    LONG = "as long as a body"


DETERMINISTIC = '({0} COLLATE "default")'
"""What searches look at in a column whose collation takes different texts for equal ones.

Such a collation knows no regular expressions, and LIKE only from PostgreSQL 18 on.
"""


class IndexKind(StrEnum):
    """The kind of an index: over values, geometries, or trigrams, by which searches find texts."""

    VALUES = "({0})"
    GEOMETRIES = "USING gist ({0})"
    TRIGRAMS = "USING gin (system_fold({0}) gin_trgm_ops)"


@dataclass(frozen=True, slots=True)
class FieldFunction:
    """A function as SQL over the column, and in Python over the comparable value of the type.

    Both give null for a value without such a part.
    """

    sql: str
    call: Callable[[Any], int | None]


def count_entries(entries: Any) -> int | None:
    """Return the number of entries of a list, or of a text with commas."""
    # The empty text has the length 0; "".split(",") would be one empty entry.
    if isinstance(entries, str) and entries:
        entries = entries.split(",")
    if not isinstance(entries, list | str):
        return None
    return len(entries)


@dataclass(frozen=True, slots=True)
class FastPath:
    """A fast way to convert values of one Python type.

    `extremes` returns the values to try: if these fit, all others do. `texts` converts them all.
    """

    kind: type
    extremes: Callable[[Sequence[Any]], Iterable[object]]
    texts: Callable[[Sequence[Any]], Sequence[str | None]]


def comparing(parse: Parse, convert: Callable[[str], Any]) -> Callable[[object], Any]:
    """Return a function that converts what `parse` returns to a value that Python compares."""
    return lambda value: convert(parse(value))


def any_range(precision: int | None, scale: int | None) -> RangeTest | None:
    """Return no test: columns of the type hold all that its parser takes."""
    return None


def same_text(literal: str) -> object:
    return literal


JSON_TEXT: Mapping[str, object] = MappingProxyType({"type": "string"})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FieldType:
    """One field type. Attributes that end in `_sql` are templates of SQL, over `{0}`."""

    name: str
    # An operator fits if it needs none, or one of these (`require_fit` of
    # cms/query/plan/conditions.py).
    traits: frozenset[Trait] = frozenset()

    # Values

    # The result is a text, never a number or a date: the statement casts it, and psycopg sends it
    # as it is.
    parse: Parse
    """Turns a value into the text of a parameter."""
    fast_path: FastPath | None = None
    """Parses the usual values of many rows at once."""
    range_test: RangeTestOf = any_range
    seal: Callable[[str], str] | None = None
    """Makes the stored form of a parsed value, such as the hash of a password."""
    comparable: Callable[[object], Any] | None = None
    """Turns a value into one that Python compares as PostgreSQL does; without it `parse` does."""
    read_default: Callable[[str], object] = same_text
    """Turns the text of a stored value into the value that answers show; ValueError for another."""
    cell: Cell = Cell.TEXT
    functions: Mapping[str, FieldFunction] = field(default_factory=dict)
    """The functions of a field by their names."""
    search: Search = Search.NONE
    size: ValueSize = ValueSize.SHORT
    json_schema: Mapping[str, object] = field(default_factory=lambda: JSON_TEXT)
    """The JSON Schema of the values in answers, apart from null."""

    # Parameters: each travels as text and is cast inside the statement

    cast: str
    """The type of operands and written values."""
    rounded_cast: str = ""
    """The type of operands where they must be rounded as the column rounds values, else empty."""
    parse_rounded: Parse | None = None
    """Turns a value into the text of such an operand."""
    index_cast: str = ""
    """The type of lists of operands where an index needs the column's own type, else empty."""
    array_cast: str = ""
    """The type of written values where PostgreSQL has no plain array of `cast`, else empty."""
    # For a geometry: ST_GeomFromGeoJSON(r.c0). Most types write what the array of `cast` holds.
    write_sql: str = "{0}"
    """The template of the column's value over the written one; `{1}` is the type of the column."""
    text_sql: str = "{0}::{1}"
    """The column's value from a text; `{1}` is the type of the column."""

    # Columns

    value_sql: str = "{0}"
    """The value of the type, from the column."""
    json_sql: str = "{0}"
    """How answers show the value."""
    document_sql: str = "{0}"
    """The document into which paths of a JSON field lead."""
    sum_sql: str = "to_json(trim_scale({0}))"
    """How answers show sums and averages."""
    # Keys of many-to-any relations and of the history are texts; a text that does not match is the
    # key of nothing, and its cast would fail the whole statement.
    key_pattern: str | None = None
    """The form of texts that can be cast to the type, as a regular expression of PostgreSQL."""
    base_types: tuple[str, ...] = ()
    """The types of PostgreSQL whose columns have this type."""
    marker: str = ""
    """The special marker that new fields of the type get."""
    marked_types: frozenset[str] = frozenset()
    """The types whose columns are taken for this type where their field has the marker."""
    markers: frozenset[str] = frozenset()
    """The special markers that fit this type but not every type."""
    is_text_form: bool = False
    """Whether clients read and write the text of a type that only PostgreSQL knows."""
    own_comparisons: frozenset[Trait] = frozenset()
    """What compares values as PostgreSQL does for the column's type, and not as texts."""
    own_cast: str = ""
    """The type of operands of such comparisons where it is not the column's."""
    has_equality: bool = True
    """Whether PostgreSQL can compare values for equality; otherwise their texts are compared."""
    is_kept_in_history: bool = True
    """Whether the history keeps values in a form that casts back to the same value."""
    has_list_elements: bool = True
    """Whether arrays of the type are lists for clients; else they are text."""

    # New columns, and changes of them

    column_sql: str = ""
    """The type of a new column."""
    size_settings: tuple[str, ...] = ()
    """The settings that give the column its size; without the first of them it has none."""
    sized_column_sql: str = ""
    """The type of a new column with these sizes, `{0}` and `{1}`."""
    default_length: int | None = None
    now_sql: str = ""
    """The expression of the present moment."""
    key_default: str = ""
    """The expression that makes new keys."""
    extension: str = ""
    """The extension of PostgreSQL that columns of the type need."""
    index_kind: IndexKind = IndexKind.VALUES
    is_whole_number: bool = False
    """Whether a sequence can count the values up."""
    can_be_key: bool = False
    """Whether clients can make primary keys of the type."""
    can_change: bool = True
    """Whether a field can change from the type to another one, and back."""
    is_known: bool = True
    """Whether the service knows the values itself; clients make no fields of other types."""
