"""Items as clients send them, turned into the texts that columns take (docs/writes.md).

Values for related items are put aside as they came, in `ParsedItem.nested`, for
cms/items/write/parse/payload_parser.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, NoneType
from typing import cast

from cms.digits import TooManyDigits
from cms.errors import Problem, abbreviated, forbidden
from cms.hashing import passwords
from cms.mappings import without_none
from cms.schema.key_texts import key_text, key_values
from cms.schema.model import Collection, Column, Field
from cms.schema.reasons import NO_OBJECT, NO_SUCH_FIELD, not_one_of
from cms.schema.types import type_of_base_type
from cms.schema.types.field_type import OutOfRange, Parse, RangeTest, TooLong
from cms.schema.types.structures import JSON
from cms.schema.types.texts import BITS, CSV, STRING, TEXT, bits_parser
from cms.text_shapes import MASK

# {"price": "19.90", "author": None}
RowValues = Mapping[str, str | None]
"""The values of a row by their columns, as texts that PostgreSQL reads."""

MutableRowValues = dict[str, str | None]
"""The values of a row while they are collected."""

_TEXTS = (STRING, TEXT)

ColumnConverter = Callable[[Sequence[object]], Sequence[str | None]]


@dataclass(slots=True)
class ParsedItem:
    """One item: the values of its columns, the values for related items, and its problems."""

    values: MutableRowValues = field(default_factory=dict)
    nested: dict[str, object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class NotAllowed(ValueError):
    """A value that is not among the choices of its field."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(not_one_of(allowed) if allowed else "there is nothing that it may be")
        self.allowed = tuple(allowed)


ChoicesByField = Mapping[str, Sequence[str]]
"""Fields that take some texts only, each with these texts."""


class ItemParser:
    """Reads items of one collection; it is cached over requests, with the fields' converters.

    `relates` tells whether a field leads to other items. `choices` are the texts that some fields
    take. `names` are the fields that the caller may name: any other is forbidden, whether it exists
    or not. None allows all of them, to a caller who may learn which fields exist.
    """

    def __init__(
        self,
        collection: Collection,
        relates: Callable[[str], bool],
        *,
        names: frozenset[str] | None = None,
        choices: ChoicesByField = MappingProxyType({}),
    ) -> None:
        self._collection = collection
        self._relates = relates
        self._choices = choices
        self._names = names
        self._converters: dict[str, Parse] = {}

    @property
    def reveals_missing(self) -> bool:
        """Whether the caller may learn that a field does not exist."""
        return self._names is None

    def read(self, item: object) -> ParsedItem:
        """Return the values of an item.

        Raises `Refused` FORBIDDEN for a field that the caller must not name.
        """
        parsed = ParsedItem()
        if not isinstance(item, Mapping):
            parsed.problems.append(invalid_item(NO_OBJECT, self._collection.name))
            return parsed
        values = parsed.values
        converters = self._converters
        for name, value in item.items():
            # The lookup is the fast path: after the first items each field has its converter.
            convert = converters.get(name) or self._converter(parsed, name, value)
            if convert is None:
                continue
            try:
                values[name] = None if value is None else convert(value)
            except ValueError as error:
                self._refuse(parsed, name, value, error)
        references = [field for field in self._collection.references if field.name in values]
        # Null last: columns that another one sets are no contradiction to it.
        for reference in sorted(references, key=lambda field: values[field.name] is None):
            if not self._set_columns(values, reference, values.pop(reference.name)):
                reason = "it contradicts what is sent for its columns"
                problem = invalid_item(reason, self._collection.name, reference.name)
                parsed.problems.append(problem)
        return parsed

    def _set_columns(self, values: MutableRowValues, reference: Field, key: str | None) -> bool:
        """Set the columns of a reference, and tell whether what was sent for them is the same."""
        columns = column_values(reference, key)
        if key is None:
            # It is null while one of its columns is: where it is sent back, the others stay.
            for name, value in columns.items():
                values.setdefault(name, value)
            return any(values.get(part.name) is None for part in reference.parts)
        for part in reference.set_fields:
            value = columns[part.name]
            if not are_equal(part, values.setdefault(part.name, value), value):
                return False
        return True

    def read_columns(self, items: Sequence[object]) -> list[MutableRowValues] | None:
        """Return the values of items as `read` does, column by column, which takes less time.

        Returns None for items that do not name the same fields in one order, name related items, or
        have a problem: `read` then takes them one by one.
        """
        if set(map(type, items)) != {dict}:
            return None
        mappings = cast(Sequence[dict[str, object]], items)
        # tuple() of a dict is its keys in their order.
        if len(set(map(tuple, mappings))) != 1:
            return None
        # All items have the same keys in one order, so that the n-th value of each belongs to the
        # n-th field.
        names = tuple(mappings[0])
        if not names:
            return [{} for _ in mappings]
        converters: list[ColumnConverter] = []
        for name in names:
            convert_column = self._column_converter(name)
            if convert_column is None:
                return None
            converters.append(convert_column)
        columns = zip(*(mapping.values() for mapping in mappings), strict=True)
        try:
            texts = [convert(values) for convert, values in zip(converters, columns, strict=True)]
        except ValueError:
            return None
        # `strict` would cost a check for each row of lists that are equally long already.
        return [dict(zip(names, row)) for row in zip(*texts)]  # noqa: B905

    def _column_converter(self, name: str) -> ColumnConverter | None:
        # The item is thrown away: it only collects the problem, for which None is returned.
        convert = self._converters.get(name) or self._converter(ParsedItem(), name, None)
        if convert is None:
            return None
        if name in self._choices:
            return for_each(convert)
        # Its value is that of several columns.
        if self._collection.fields[name].parts:
            return None
        # A secret's converter is not kept: each value decides whether there is one.
        if name not in self._converters:
            return None
        return column_converter(self._collection.fields[name], convert)

    def _converter(self, parsed: ParsedItem, name: str, value: object) -> Parse | None:
        """Return the converter of a field, or None for a value that needs none.

        That is a value for related items, a problem, or the mask that answers show for a secret.
        """
        field = self._collection.fields.get(name)
        if self._names is not None and name not in self._names:
            # Before the field is looked at: the refusal of a hidden field must not differ from that
            # of a missing one.
            raise forbidden()
        if field and not field.has_value and self._relates(name):
            parsed.nested[name] = value
        # It comes back when a client saves what it has read.
        elif field and self._is_generated(field):
            return None
        elif problem := _unwritable_problem(field, name, self._collection):
            parsed.problems.append(problem)
        elif field and name in self._choices:
            convert = _one_of(converter(field), self._choices[name])
            return self._converters.setdefault(name, convert)
        elif field and not field.is_secret:
            return self._converters.setdefault(name, converter(field))
        # The mask comes back when a client saves what it has read; it must not become the new
        # secret.
        elif field and not _is_mask(value):
            return converter(field)
        return None

    def _is_generated(self, field: Field) -> bool:
        is_key = field.name in self._collection.key_names
        return field.column is not None and field.column.is_generated and not is_key

    def _refuse(self, parsed: ParsedItem, name: str, value: object, error: ValueError) -> None:
        """Add the problem of a value; an object at a to-one field is a related item instead."""
        if isinstance(value, Mapping) and self._relates(name):
            parsed.nested[name] = value
        elif isinstance(value, list) and self._holds_keys(name):
            parsed.values[name] = key_text(map(str, value))
        else:
            parsed.problems.append(value_problem(self._collection, name, value, error))

    def _holds_keys(self, name: str) -> bool:
        """Tell whether a field holds the texts of keys: that of a many-to-any relation does."""
        field = self._collection.fields[name]
        return self._relates(name) and not field.parts and field.type in _TEXTS


def _is_mask(value: object) -> bool:
    """Tell whether a value is what answers show of a secret, or of a key that holds one."""
    return value == MASK or (isinstance(value, list) and MASK in value)


def _unwritable_problem(field: Field | None, name: str, collection: Collection) -> Problem | None:
    if field is None:
        return invalid_item(NO_SUCH_FIELD, collection.name, name)
    if not field.has_value:
        return invalid_item("it holds no value", collection.name, name)
    return None


# One value


def converter(field: Field) -> Parse:
    """Return the function that turns a value into the text that the field's column takes.

    The function raises ValueError with a reason for a value that the column does not take.
    """
    parse = field.type.parse
    column = field.column
    if column is None:
        assert field.parts
        return parse
    if column.element:
        return parse_list(column)
    if field.type is JSON and CSV.marker in field.special:
        return _parse_names
    # PostgreSQL would refuse another value by a message that names no field.
    if column.choices:
        return _one_of(parse, column.choices)
    if field.type is BITS:
        parse = bits_parser(column.data_type)
    if seal := _seal_of(field):
        parse = _sealing(parse, seal)
    # Bounds apply to the stored value: the hash, and not the secret.
    in_range = field.type.range_test(column.precision, column.scale)
    return bounded(parse, column.max_length, in_range)


def column_values(field: Field, value: str | None) -> MutableRowValues:
    """Return the values that writes set in the columns of a field, which may be a key."""
    if not field.parts:
        return {field.name: value}
    parts = field.set_fields
    if value is None:
        # A column that other references share often takes no null: the others make it none.
        nullable = [part for part in parts if part.column and part.column.is_nullable]
        return dict.fromkeys(part.name for part in nullable or parts)
    values = stored_values(field, value)
    return {part.name: values[part.name] for part in parts}


def stored_values(field: Field, text: str) -> MutableRowValues:
    """Return what a row holds in the columns of a field whose value has this text."""
    if not field.parts:
        return {field.name: text}
    names = [part.name for part in field.parts]
    return dict(zip(names, key_values(text), strict=True))


def are_equal(field: Field, text: str | None, other: str | None) -> bool:
    """Tell whether two texts are of one value of a field."""
    if text is None or other is None:
        return text == other
    read = field.type.comparable or field.type.parse
    return bool(read(text) == read(other))


def _parse_names(value: object) -> str:
    """Take names also as a text with commas between them."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    return JSON.parse(value)


def _seal_of(field: Field) -> Callable[[str], str] | None:
    """Return the function that makes the stored form of a secret; None for any other field."""
    if "digest" in field.special:
        return passwords.digest
    return field.type.seal


def _sealing(parse: Parse, seal: Callable[[str], str]) -> Parse:
    return lambda value: seal(parse(value))


def _one_of(convert: Parse, allowed: Sequence[str]) -> Parse:
    allowed_set = frozenset(allowed)

    def convert_allowed(value: object) -> str:
        text = convert(value)
        if text not in allowed_set:
            raise NotAllowed(allowed)
        return text

    return convert_allowed


def for_each(convert: Parse) -> ColumnConverter:
    """Return a function that converts every value of a column."""
    return lambda values: [None if value is None else convert(value) for value in values]


def column_converter(field: Field, convert: Parse) -> ColumnConverter:
    """Return a function that converts the values of a column as `convert` does each value.

    Where all values have the Python type that nearly all values of the field have, only the extreme
    ones are tried: if they fit, all do. The ValueError does not name the value that does not fit.
    """
    fast_path = field.type.fast_path
    # The stored form of a secret is made for each value by itself.
    if _seal_of(field):
        fast_path = None
    convert_each = for_each(convert)

    def convert_column(values: Sequence[object]) -> Sequence[str | None]:
        kinds = set(map(type, values))
        if fast_path is None or kinds - {NoneType} != {fast_path.kind}:
            return convert_each(values)
        present = values
        if len(kinds) > 1:
            present = [value for value in values if value is not None]
        # The smallest and the largest number, or the longest text: if these fit, so does all
        # between them.
        for value in fast_path.extremes(present):
            convert(value)
        return fast_path.texts(values)

    return convert_column


# Problems

MISSING_KEY = "it must hold its primary key"
REPEATED = "it is there twice"
"""Reasons why an item is invalid: nothing names it, or something else names it as well."""


def invalid_item(reason: str, collection: str, name: str | None = None) -> Problem:
    """Return the problem of an item, or of one of its fields."""
    extensions = {"reason": reason, "collection": collection}
    if name:
        subject = f'"{name}" of "{collection}"'
        extensions["field"] = name
    else:
        subject = f'An item of "{collection}"'
    return Problem("INVALID_PAYLOAD", f"Invalid payload. {subject}: {reason}.", extensions)


def value_problem(collection: Collection, name: str, value: object, error: ValueError) -> Problem:
    """Return the problem of a value that a field does not take; a key of several has no name.

    It repeats the value, unless the collection has a secret, which may be in the wrong field.
    """
    details: dict[str, object] = {}
    if not collection.has_secrets:
        details["value"] = abbreviated(value)
    if isinstance(error, NotAllowed):
        details["allowed"] = list(error.allowed)
    # A value out of range has a code of its own; everything else is INVALID_PAYLOAD with the
    # reason.
    if isinstance(error, OutOfRange | TooManyDigits):
        code = "VALUE_OUT_OF_RANGE"
    elif isinstance(error, TooLong):
        code = "VALUE_TOO_LONG"
    else:
        problem = invalid_item(str(error), collection.name, name)
        return replace(problem, extensions={**problem.extensions, **details})
    extensions = {"collection": collection.name, "field": name or None, **details}
    subject = f'The value of "{name}"' if name else "The key"
    return Problem(code, f"{subject} does not fit: {error}.", without_none(extensions))


# Columns that are arrays of simple types: read and written as JSON lists

# `character varying(20)[]`, as format_type() of PostgreSQL prints it.
_LENGTH_OF_ELEMENTS = re.compile(r"character(?: varying)?\((\d+)\)\[")


def parse_list(column: Column) -> Parse:
    """Return a function that prints a list as PostgreSQL's text of an array.

    The function raises ValueError with a reason for a value that the column does not take.
    """
    parse_element = _element_parser(column)

    def parse(value: object) -> str:
        if not isinstance(value, list):
            raise ValueError("it must be a list")
        return _print_list(value, parse_element)

    return parse


def _element_parser(column: Column) -> Parse:
    """Return a function that parses one element as a column of the element's type would take it."""
    element_type = type_of_base_type(str(column.element))
    length = _LENGTH_OF_ELEMENTS.match(column.data_type)
    max_length = int(length[1]) if length else None
    # Without precision and scale: the catalogue has them of columns only, and not of elements.
    in_range = element_type.range_test(None, None)
    return bounded(element_type.parse, max_length, in_range, subject="an element")


def _print_list(items: list[object], parse_element: Parse) -> str:
    return "{" + ",".join(_print_element(item, parse_element) for item in items) + "}"


def _print_element(item: object, parse_element: Parse) -> str:
    """Print an element; a list among the elements is a further dimension."""
    if item is None:
        return "NULL"
    # PostgreSQL would drop a dimension that holds nothing, and so change the value.
    if item == []:
        raise ValueError("a list in it must not be empty")
    if isinstance(item, list):
        return _print_list(item, parse_element)
    text = parse_element(item).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def bounded(
    parse: Parse, max_length: int | None, in_range: RangeTest | None, *, subject: str = "it"
) -> Parse:
    """Return a parser that takes no text longer than `max_length`, and no value out of range."""
    if not max_length and not in_range:
        return parse

    # Characters, not bytes: so PostgreSQL counts the length of varchar(n).
    def parse_bounded(value: object) -> str:
        text = parse(value)
        if max_length and len(text) > max_length:
            raise TooLong(f"{subject} takes at most {max_length} characters")
        if in_range and not in_range(text):
            raise OutOfRange(subject)
        return text

    return parse_bounded
