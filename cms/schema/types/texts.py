"""Types of texts: strings, UUIDs, lists with commas, hashes, and types only PostgreSQL knows."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import cast

from cms import text_shapes
from cms.digits import check_numbers
from cms.hashing import passwords
from cms.jsontext import NUL_REFUSAL
from cms.schema.reasons import NO_STRING
from cms.schema.types.field_type import (
    JSON_TEXT,
    Cell,
    FastPath,
    FieldFunction,
    FieldType,
    Parse,
    Search,
    Trait,
    ValueSize,
    comparing,
    count_entries,
)

# With hyphens or without any: \1 repeats whether the first is there.
_UUID = re.compile(
    r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.IGNORECASE
)
_CANONICAL_UUID = re.compile(text_shapes.UUID)
_USER_MARKERS = frozenset({"user-created", "user-updated", "role-created", "role-updated"})
_ID_MARKERS = _USER_MARKERS | {"uuid"}
TEXT_MARKERS = frozenset({"hash", "cast-csv", "cast-json"})
_TEXT_TRAITS = frozenset(
    {
        Trait.NULL,
        Trait.EQUALITY,
        Trait.CASE,
        Trait.ORDER,
        Trait.SORTING,
        Trait.PARTS,
        Trait.PATTERNS,
        Trait.REGEX,
        Trait.EMPTINESS,
    }
)
_DEFAULT_LENGTH = 255
_BIT_LENGTH = re.compile(r"\((\d+)\)")
TEXT_TYPES = frozenset({"string", "text"})


def parse_text(value: object) -> str:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError(NUL_REFUSAL)
        return value
    # A number in a text field is taken as its digits: forms and spreadsheets send 42 for "42".
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return str(value)
    raise ValueError(NO_STRING)


def lower_text(text: str) -> str:
    """Return a text in lower case as PostgreSQL makes it: each character becomes one character."""
    # Python would make two characters of some, such as the Turkish capital dotted I, and the text
    # would then differ from the result of PostgreSQL's `lower()`.
    return "".join(character.lower()[0] for character in text)


def parse_unknown(value: object) -> str:
    """Return the text of a value whose type only PostgreSQL knows."""
    text = parse_text(value)
    # A number with very many digits would keep PostgreSQL busy.
    check_numbers(text)
    return text


def bits_parser(data_type: str) -> Parse:
    """Return the parser for a column such as `bit(3)`, or `bit varying(3)`, which takes fewer."""
    length = _BIT_LENGTH.search(data_type)
    bits = "[01]*"
    if length:
        shortest = 0 if "varying" in data_type else length[1]
        bits = f"[01]{{{shortest},{length[1]}}}"
    pattern = re.compile(bits)

    def parse_bits(value: object) -> str:
        text = parse_unknown(value)
        if pattern.fullmatch(text) is None:
            raise ValueError(f"it must be of the form {bits}")
        return text

    return parse_bits


def parse_uuid(value: object) -> str:
    if isinstance(value, str):
        # Nearly all are as PostgreSQL writes them.
        if _CANONICAL_UUID.fullmatch(value):
            return value
        if _UUID.fullmatch(value):
            return str(uuid.UUID(value))
    raise ValueError("it must be a UUID")


def parse_csv(value: object) -> str:
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list):
        raise ValueError("it must be an array of strings")
    entries = [parse_text(entry) for entry in entries]
    # The empty text is the empty list, and splits into one empty entry.
    if value != "" and any(not entry or "," in entry for entry in entries):
        raise ValueError("each entry must be a string that is not empty and holds no comma")
    return ",".join(entries)


def _hashed(text: str) -> str:
    return passwords.hashed_value(text)


def _split(literal: str) -> object:
    return literal.split(",") if literal else []


def _extreme_texts(values: Sequence[str]) -> Iterable[str]:
    """Return the longest text, and the one character that no column takes if any text holds it."""
    # Length and U+0000 are all that a column of texts can refuse; one joined text is searched
    # faster than each.
    return max(values, key=len), "\0" if "\0" in "".join(values) else ""


def _same_texts(values: Sequence[object]) -> Sequence[str | None]:
    return cast(Sequence[str | None], values)


TEXT = FieldType(
    name="text",
    traits=_TEXT_TRAITS,
    parse=parse_text,
    fast_path=FastPath(str, _extreme_texts, _same_texts),
    search=Search.CONTAINED,
    size=ValueSize.LONG,
    cast="text",
    json_sql="{0}::text",
    # Every text can be cast to text.
    key_pattern="",
    base_types=("text",),
    markers=_ID_MARKERS | TEXT_MARKERS,
    column_sql="text",
)
_OWN_COMPARISONS = frozenset({Trait.EQUALITY, Trait.ORDER, Trait.SORTING})
# Its own operators ignore case.
CITEXT = replace(
    TEXT,
    comparable=comparing(parse_text, lower_text),
    write_sql="{0}::{1}",
    base_types=("citext",),
    own_comparisons=_OWN_COMPARISONS,
)
STRING = replace(
    TEXT,
    name="string",
    base_types=("varchar", "bpchar"),
    column_sql=f"varchar({_DEFAULT_LENGTH})",
    size_settings=("max_length",),
    sized_column_sql="varchar({0})",
    default_length=_DEFAULT_LENGTH,
    can_be_key=True,
)
UUID = FieldType(
    name="uuid",
    traits=frozenset({Trait.NULL, Trait.EQUALITY, Trait.SORTING, Trait.REGEX}),
    parse=parse_uuid,
    search=Search.EQUAL,
    cast="uuid",
    json_sql="{0}::text",
    json_schema={"type": "string", "format": "uuid"},
    key_pattern="^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$",
    base_types=("uuid",),
    markers=_ID_MARKERS,
    column_sql="uuid",
    key_default="gen_random_uuid()",
    can_be_key=True,
)
# A text column whose entries are parted by commas; only the marker tells it from other texts.
CSV = FieldType(
    name="csv",
    traits=_TEXT_TRAITS - {Trait.EQUALITY, Trait.CASE, Trait.ORDER},
    parse=parse_csv,
    read_default=_split,
    cell=Cell.JSON_OR_TEXT,
    functions={"count": FieldFunction("cardinality(string_to_array({0}, ','))", count_entries)},
    size=ValueSize.LONG,
    cast="text",
    json_sql="to_json(string_to_array({0}, ','))",
    json_schema={"type": "array", "items": JSON_TEXT},
    marker="cast-csv",
    marked_types=TEXT_TYPES,
    markers=TEXT_MARKERS,
    is_kept_in_history=False,
    column_sql="text",
    can_change=False,
)
# The stored value is never shown or compared, so that hardly any operator is left.
HASH = FieldType(
    name="hash",
    traits=frozenset({Trait.NULL, Trait.REGEX, Trait.EMPTINESS}),
    parse=parse_text,
    seal=_hashed,
    cast="text",
    marker="hash",
    marked_types=TEXT_TYPES,
    markers=TEXT_MARKERS,
    is_kept_in_history=False,
    column_sql=f"varchar({_DEFAULT_LENGTH})",
    size_settings=("max_length",),
    sized_column_sql="varchar({0})",
    can_change=False,
)
# A type that only PostgreSQL knows: its text is what clients read and write.
UNKNOWN = replace(
    TEXT,
    name="unknown",
    # Their texts have another order than the values.
    traits=_TEXT_TRAITS - {Trait.ORDER},
    parse=parse_unknown,
    fast_path=None,
    write_sql="{0}::{1}",
    value_sql="{0}::text",
    base_types=(),
    is_text_form=True,
    has_equality=False,
    is_kept_in_history=False,
    column_sql="",
    is_known=False,
)
ORDERED = replace(
    UNKNOWN,
    traits=_TEXT_TRAITS,
    own_comparisons=_OWN_COMPARISONS,
    base_types=(
        "money",
        "interval",
        "timetz",
        "cidr",
        "macaddr",
        "macaddr8",
        "name",
        "oid",
        "pg_lsn",
        "int4range",
        "int8range",
        "numrange",
        "tsrange",
        "tstzrange",
        "daterange",
        "int4multirange",
        "int8multirange",
        "nummultirange",
        "tsmultirange",
        "tstzmultirange",
        "datemultirange",
    ),
)
# A cast to bit(3) would fill up an operand that is shorter.
BITS = replace(ORDERED, base_types=("bit", "varbit"), own_cast="varbit")
INET = replace(
    ORDERED,
    # A cast to text would add a mask to the address.
    value_sql="abbrev({0})",
    base_types=("inet",),
)
# Their arrays are text for clients: the elements hold lists, or are written in another way.
OPAQUE = replace(UNKNOWN, base_types=("box", "geography"), has_list_elements=False)
# A cast from text takes the names of tables only, and not the `-` that stands for no table.
REGCLASS = replace(
    UNKNOWN,
    write_sql="regclassin(textout({0}))::{1}",
    text_sql="regclassin(textout({0}))::{1}",
    base_types=("regclass",),
)
# Clients see a string, and write one of the choices of the column.
ENUM = replace(
    STRING,
    size_settings=(),
    fast_path=None,
    write_sql="{0}::{1}",
    value_sql="{0}::text",
    base_types=(),
    is_text_form=True,
    own_comparisons=frozenset({Trait.ORDER, Trait.SORTING}),
    has_equality=False,
    is_kept_in_history=False,
)
