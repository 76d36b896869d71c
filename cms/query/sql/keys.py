"""The printers of keys: of one column as it is, of several columns as one text.

A statement takes a key of several columns as the text that `cms/schema/key_texts.py` makes of it,
and splits it into values of the columns' types, so that an index finds the row. In answers of
statements it is such a text again.
"""

from __future__ import annotations

from cms.fragment import Fragment, commas, concat, fill, join, quoted, text
from cms.query.sql.arguments import key_cast
from cms.schema.model import Field

_TYPES_WITHOUT_COMMA = frozenset(
    {"integer", "bigInteger", "decimal", "float", "boolean", "date", "time", "dateTime", "uuid"}
    | {"timestamp"}
)
"""Types whose texts hold neither a comma nor a percent sign."""

_ESCAPED = "replace(replace({0}, '%', '%25'), ',', '%2C')"
_PLAIN = "replace(replace({0}, '%2C', ','), '%25', '%')"


def key_columns(key: Field, row: str = "") -> list[Fragment]:
    """Print the columns of a key; `row` is the label of its row, if it has one."""
    label = f"{row}." if row else ""
    return [text(f"{label}{quoted(part.name)}") for part in key.key_fields]


def compared_columns(key: Field, row: str) -> list[Fragment]:
    """Print the columns of a key as they are compared."""
    columns = []
    for part, column in zip(key.key_fields, key_columns(key, row), strict=True):
        # Domains over enums and ranges have no operators.
        if part.column and part.column.is_domain and part.type.own_comparisons:
            column = fill("{0}::{1}", column, text(part.column.cast))
        columns.append(column)
    return columns


def key_order(key: Field, row: str = "") -> Fragment:
    """Print the columns of a key, as rows are locked and sorted by them."""
    return commas(key_columns(key, row))


def key_text(key: Field, row: str = "") -> Fragment:
    """Print the text of a key; it is null where a part of it is."""
    parts = []
    for part, column in zip(key.key_fields, key_columns(key, row), strict=True):
        shape = "{0}::text"
        if key.parts and part.type.name not in _TYPES_WITHOUT_COMMA:
            shape = _ESCAPED.format(shape)
        parts.append(fill(shape, column))
    if not key.parts:
        return parts[0]
    return concat("(", join(" || ',' || ", parts), ")")


def key_equals(key: Field, row: str, value: Fragment) -> Fragment:
    """Print that a key is a value, which is of the type that `key_cast` names."""
    columns = compared_columns(key, row)
    if not key.parts:
        return concat(columns[0], " = ", value)
    pairs = zip(columns, _values(key, value), strict=True)
    equal = join(" AND ", (concat(column, " = ", part) for column, part in pairs))
    return concat("(", equal, ")")


def key_is_any(key: Field, row: str, values: Fragment) -> Fragment:
    """Print that a key is one of an array of values."""
    if not key.parts:
        return fill("{0} = ANY ({1})", *compared_columns(key, row), values)
    return key_is_in(key, row, fill("SELECT {0} FROM unnest({1}) AS k (key)", _row(key), values))


def key_is_in(key: Field, row: str, query: Fragment) -> Fragment:
    """Print that a key is one of those whose columns a query selects."""
    columns = commas(compared_columns(key, row))
    if not key.parts:
        return fill("{0} = ANY (ARRAY({1}))", columns, query)
    return fill("({0}) IN ({1})", columns, query)


def _row(key: Field) -> Fragment:
    return commas(_values(key, text("k.key")))


def _values(key: Field, value: Fragment) -> list[Fragment]:
    """Print the parts of the text of a key, each in the type of its column."""
    values = []
    for number, part in enumerate(key.parts, start=1):
        shape = f"split_part({{0}}, ',', {number})"
        if part.type.name not in _TYPES_WITHOUT_COMMA:
            shape = _PLAIN.format(shape)
        values.append(fill(part.type.text_sql, fill(shape, value), text(key_cast(part))))
    return values


# Keys that a statement reads first and writes by afterwards


def key_outputs(key: Field, row: str = "") -> Fragment:
    """Print the columns of a key under the names by which `is_kept_key` finds them."""
    names = _kept_names(key)
    columns = compared_columns(key, row)
    return commas(
        concat(column, f" AS {label}") for column, label in zip(columns, names, strict=True)
    )


def is_kept_key(key: Field, row: str, kept: str) -> Fragment:
    """Print that a row has the key that another one keeps in the columns of `key_outputs`."""
    names = _kept_names(key)
    columns = compared_columns(key, row)
    pairs = zip(columns, names, strict=True)
    return join(" AND ", (concat(column, f" = {kept}.{label}") for column, label in pairs))


def _kept_names(key: Field) -> list[str]:
    if not key.parts:
        return ["k"]
    return [f"k{number}" for number in range(len(key.parts))]
