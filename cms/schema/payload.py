"""Items as clients send them, turned into what the columns take (decisions, sections 5 and 15).

What an item says of related items is set aside as it came, in `ParsedItem.nested`: cms/items/write/changes.py reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, NoneType
from typing import Any

from cms import passwords
from cms.digits import TooManyDigits
from cms.errors import Problem, abbreviated, forbidden
from cms.schema.array_columns import parse_list
from cms.schema.bounds import is_bounded, is_within_bounds
from cms.schema.model import Collection, Field
from cms.schema.types import MASK, OutOfRange, TooLong, parse_integer, parse_text

Values = dict[str, str | None]
"""The columns of a row as PostgreSQL reads them."""

Converter = Callable[[object], str]
ColumnConverter = Callable[[Sequence[object]], Sequence[str | None]]


@dataclass(slots=True)
class ParsedItem:
    """One item, read: its columns, what it says of related items, and what is wrong with it."""

    values: Values = field(default_factory=dict)
    nested: dict[str, object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class NotAllowed(ValueError):
    """A value that is none of those that its field may have."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(
            f"it must be one of {', '.join(allowed)}"
            if allowed
            else "there is nothing that it may be"
        )
        self.allowed = tuple(allowed)


Choices = Mapping[str, Sequence[str]]
"""Fields that take some words only, each with the words."""


class ItemParser:
    """Reads items of one collection; what its fields need is found once for all of them, in whichever call they come.

    `relates` tells whether a field leads to other items; `choices` holds the words that fields may have. `names` are
    the fields that may be named: any other is hidden, whether it is there or not. None is all of them, for a caller
    who is told what is not there.
    """

    def __init__(
        self,
        collection: Collection,
        relates: Callable[[str], bool],
        *,
        names: frozenset[str] | None = None,
        choices: Choices = MappingProxyType({}),
    ) -> None:
        self._collection = collection
        self._relates = relates
        self._choices = choices
        self._names = names
        self._converters: dict[str, Converter] = {}

    @property
    def told(self) -> bool:
        """Whether this caller is told what is not there."""
        return self._names is None

    def read(self, item: object) -> ParsedItem:
        """Return what an item says; raises `Refused` FORBIDDEN for a field that is hidden from this caller."""
        entry = ParsedItem()
        if not isinstance(item, Mapping):
            entry.problems.append(invalid_item("it must be an object", self._collection.name))
            return entry
        values, converters = entry.values, self._converters
        for name, value in item.items():
            convert = converters.get(name) or self._converter(entry, name, value)
            if convert is None:
                continue
            try:
                values[name] = None if value is None else convert(value)
            except ValueError as error:
                self._refuse(entry, name, value, error)
        return entry

    def read_columns(self, items: Sequence[object]) -> list[Values] | None:
        """Return the values of items as `read` does, column by column.

        None where that takes more: items that do not name the same fields in one order, related items, anything wrong.
        """
        if set(map(type, items)) != {dict} or len(set(map(tuple, items))) != 1:  # type: ignore[arg-type]
            return None
        names: tuple[str, ...] = tuple(items[0])  # type: ignore[arg-type]
        converters = [convert for name in names if (convert := self._column_converter(name))]
        if not names or len(converters) < len(names):
            return None
        columns = zip(*(item.values() for item in items), strict=True)  # type: ignore[attr-defined]
        try:
            texts = [convert(values) for convert, values in zip(converters, columns, strict=True)]
        except ValueError:
            return None
        return [dict(zip(names, row)) for row in zip(*texts)]  # noqa: B905  (they are equally long)

    def _column_converter(self, name: str) -> ColumnConverter | None:
        one = self._converters.get(name) or self._converter(ParsedItem(), name, None)
        if name in self._choices:
            return one and for_each(one)
        return (
            column_converter(self._collection.fields[name], one)
            if name in self._converters and one
            else None
        )

    def _converter(self, entry: ParsedItem, name: str, value: object) -> Converter | None:
        """Return what turns values of a field into text, or None when there is nothing to turn."""
        found = self._collection.fields.get(name)
        if self._names is not None and name not in self._names:
            raise forbidden()
        if found and found.column is None and self._relates(name):
            entry.nested[name] = value
        elif fault := _unwritable_problem(found, name, self._collection):
            entry.problems.append(fault)
        elif found and name in self._choices:
            return self._converters.setdefault(name, _one_of(converter(found), self._choices[name]))
        elif found and not found.is_secret:
            return self._converters.setdefault(name, converter(found))
        elif found and value != MASK:
            return converter(found)
        return None

    def _refuse(self, entry: ParsedItem, name: str, value: object, error: ValueError) -> None:
        """An object at a to-one field is a related item, and no fault."""
        if isinstance(value, Mapping) and self._relates(name):
            entry.nested[name] = value
        else:
            entry.problems.append(value_problem(self._collection, name, value, error))


def _unwritable_problem(found: Field | None, name: str, collection: Collection) -> Problem | None:
    if found is None:
        return invalid_item("there is no such field", collection.name, name)
    if found.column is None:
        return invalid_item("it holds no value", collection.name, name)
    if found.column.is_generated and name != collection.primary_key:
        return invalid_item("the database fills it", collection.name, name)
    return None


# One value


def converter(found: Field) -> Converter:
    """Return what makes of a value the text that the field's column takes; it raises ValueError with a reason."""
    parse, column = found.type.parse, found.column
    assert column
    if column.element:
        return parse_list(column)
    if column.choices:
        return _one_of(parse, column.choices)
    most, has_bounds = column.max_length, is_bounded(column) and not found.is_numeric_boolean
    if found.type_name == "hash":
        parse = _hashing(parse)
    if "digest" in found.special:
        parse = _digesting(parse)
    if not most and not has_bounds:
        return parse

    def convert(value: object) -> str:
        text = parse(value)
        if most and len(text) > most:
            raise TooLong(f"it takes at most {most} characters")
        if has_bounds and not is_within_bounds(column, text):
            raise OutOfRange("it is out of range")
        return text

    return convert


def _one_of(convert: Converter, allowed: Sequence[str]) -> Converter:
    words = frozenset(allowed)

    def choose(value: object) -> str:
        text = convert(value)
        if text not in words:
            raise NotAllowed(allowed)
        return text

    return choose


def for_each(one: Converter) -> ColumnConverter:
    """Return what makes of many values what a converter makes of each."""
    return lambda values: [None if value is None else one(value) for value in values]


def column_converter(found: Field, one: Converter) -> ColumnConverter:
    """Return what makes of many values what the field's converter makes of each; it raises ValueError without telling.

    Of values that are all of the most usual kind, the converter tries only those that are no good if any of them is.
    """
    kept = found.type_name != "hash" and "digest" not in found.special and not found.is_text_form
    usual = _FAST_PATHS.get(found.type.parse) if kept else None

    each = for_each(one)

    def convert(values: Sequence[object]) -> Sequence[str | None]:
        kinds = set(map(type, values))
        if usual is None or kinds - {NoneType} != {usual.kind}:
            return each(values)
        told = values if len(kinds) == 1 else [value for value in values if value is not None]
        for value in usual.extremes(told):
            one(value)
        return usual.texts(values)

    return convert


@dataclass(frozen=True, slots=True)
class _FastPath:
    """What nearly all values of a type are: `extremes` are those of them that are no good if any is."""

    kind: type
    extremes: Callable[[Sequence[Any]], Iterable[object]]
    texts: ColumnConverter


def _extreme_texts(values: Sequence[str]) -> Iterable[str]:
    return max(values, key=len), "\0" if "\0" in "".join(values) else ""


_FAST_PATHS: Mapping[Callable[[object], str], _FastPath] = MappingProxyType(
    {
        parse_text: _FastPath(str, _extreme_texts, lambda values: values),  # type: ignore[arg-type,return-value]
        parse_integer: _FastPath(
            int,
            lambda values: (min(values), max(values)),
            lambda values: [None if value is None else str(value) for value in values],
        ),
    }
)


def _hashing(parse: Converter) -> Converter:
    return lambda value: passwords.hashed(parse(value))


def _digesting(parse: Converter) -> Converter:
    return lambda value: passwords.digest(parse(value))


# What is wrong


def invalid_item(reason: str, collection: str, name: str | None = None) -> Problem:
    """Return the problem of an item, or of one of its fields."""
    at = f'"{name}" of "{collection}"' if name else f'An item of "{collection}"'
    extensions = {"reason": reason, "collection": collection} | ({"field": name} if name else {})
    return Problem("INVALID_PAYLOAD", f"Invalid payload. {at}: {reason}.", extensions)


def value_problem(collection: Collection, name: str, value: object, error: ValueError) -> Problem:
    """Return the problem of a value that a field does not take; it repeats the value where that can be no secret."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    sent: dict[str, object] = {} if collection.has_secrets else {"value": abbreviated(value)}
    if isinstance(error, NotAllowed):
        sent["allowed"] = list(error.allowed)
    if code is None:
        problem = invalid_item(str(error), collection.name, name)
        return replace(problem, extensions={**problem.extensions, **sent})
    place = {"collection": collection.name, "field": name}
    return Problem(code, f'The value of "{name}" does not fit: {error}.', {**place, **sent})


_CODES = (
    (OutOfRange, "VALUE_OUT_OF_RANGE"),
    (TooManyDigits, "VALUE_OUT_OF_RANGE"),
    (TooLong, "VALUE_TOO_LONG"),
)
