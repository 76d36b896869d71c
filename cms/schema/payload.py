"""Items as clients send them, turned into what the columns take (decisions, sections 5 and 15)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cms import passwords
from cms.errors import Problem, Refused, forbidden
from cms.schema.bounds import holds
from cms.schema.model import Collection, Field
from cms.schema.types import MASK, Family, OutOfRange

Values = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, and when: what the special fields are filled with."""

    user: str | None
    role: str | None
    moment: datetime
    admin: bool

    @classmethod
    def now(cls, user: str | None, role: str | None, *, admin: bool) -> Writer:
        return cls(user, role, datetime.now(UTC), admin)


def values_of_new(collection: Collection, items: Sequence[object], writer: Writer) -> list[Values]:
    """Return the columns of new rows; raises `Refused` with everything that is wrong with any of them."""
    return _all(collection, items, writer, _new, _ON_CREATE)


def values_of_change(collection: Collection, items: Sequence[object], writer: Writer) -> list[Values]:
    """Return the columns to change, the primary key among them where the client sent it."""
    return _all(collection, items, writer, _change, _ON_UPDATE)


class TooLong(ValueError):
    """A text with more characters than its column takes."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What is to be seen to in every row of a batch, found once: most fields have nothing of it."""

    stamps: Values
    optional_stamps: Values
    uuids: tuple[str, ...]
    counting: tuple[str, ...]
    required: tuple[Field, ...]
    not_null: tuple[Field, ...]


def _duties(collection: Collection, writer: Writer, markers: frozenset[str]) -> Duties:
    fields = tuple(collection.columns)
    stamped = [(field, _stamp(field, writer, markers)) for field in fields if markers.intersection(field.special)]
    always = {field.name: said for field, said in stamped if said is not None or _is_nullable(field)}
    return Duties(
        stamps=always,
        optional_stamps={field.name: said for field, said in stamped if field.name not in always},
        uuids=tuple(field.name for field in fields if "uuid" in field.special),
        counting=tuple(field.name for field in fields if _counts_up(field)),
        required=tuple(field for field in fields if _is_required(field)),
        not_null=tuple(field for field in fields if not _takes_null(field)),
    )


_Check = Callable[[Values, Duties], list[Problem]]


def _all(
    collection: Collection, items: Sequence[object], writer: Writer, check: _Check, markers: frozenset[str]
) -> list[Values]:
    problems: list[Problem] = []
    found: list[Values] = []
    duties = _duties(collection, writer, markers)
    for index, item in enumerate(items):
        values, faults = _parse(collection, item, writer)
        if isinstance(item, Mapping):
            told = {fault.extensions.get("field") for fault in faults}
            faults += [fault for fault in check(values, duties) if fault.extensions["field"] not in told]
        place = {"index": index} if faults and len(items) > 1 else {}
        problems += [Problem(fault.code, fault.message, {**fault.extensions, **place}) for fault in faults]
        found.append(values)
    if problems:
        raise Refused(problems)
    return found


def _new(values: Values, duties: Duties) -> list[Problem]:
    """Fill what a new row gets by itself, then tell which required fields are missing."""
    _fill(values, duties)
    for name in duties.uuids:
        if values.get(name) is None:
            values[name] = str(uuid.uuid4())
    for name in duties.counting:
        if values.get(name) is None:
            values.pop(name, None)  # null is how clients say that a key is not theirs to choose
    lacking = {field.name: field for field in duties.required if values.get(field.name) is None}
    nulls = {name: field for field in duties.not_null if values.get(name := field.name, "") is None}
    return [_missing(field) for field in (lacking | nulls).values()]


def _change(values: Values, duties: Duties) -> list[Problem]:
    _fill(values, duties)
    return [_missing(field) for field in duties.not_null if field.name in values and values[field.name] is None]


def _fill(values: Values, duties: Duties) -> None:
    """Write what is the service's to write, whatever the client sent: nobody can write in another's name."""
    values.update(duties.stamps)
    for name in duties.optional_stamps.keys() & values.keys():
        values[name] = duties.optional_stamps[name]


# One value


def _parse(collection: Collection, item: object, writer: Writer) -> tuple[Values, list[Problem]]:
    if not isinstance(item, Mapping):
        return {}, [_invalid("it must be an object", collection.name)]
    values: Values = {}
    problems: list[Problem] = []
    for name, value in item.items():
        field = collection.fields.get(name)
        if field is None and not writer.admin:
            raise forbidden()
        fault = _unwritable(field, name, collection)
        if fault:
            problems.append(fault)
        elif field and not (field.secret and value == MASK):
            _put(values, field, value, problems)
    return values, problems


def _unwritable(field: Field | None, name: str, collection: Collection) -> Problem | None:
    if field is None:
        return _invalid("there is no such field", collection.name, name)
    if field.column is None:
        return _invalid("related items are written through their own collection", collection.name, name)
    if field.column.generated:
        return _invalid("the database fills it", collection.name, name)
    return None


def _put(values: Values, field: Field, value: object, problems: list[Problem]) -> None:
    try:
        values[field.name] = None if value is None else _converted(field, value)
    except OutOfRange as error:
        problems.append(_fault("VALUE_OUT_OF_RANGE", str(error), field))
    except TooLong as error:
        problems.append(_fault("VALUE_TOO_LONG", str(error), field))
    except ValueError as error:
        problems.append(_invalid(str(error), field.collection, field.name))


def _converted(field: Field, value: object) -> str:
    text, column = field.type.parse(value), field.column
    if field.type_name == "hash":
        text = passwords.hashed(text)
    if column and column.max_length and len(text) > column.max_length:
        raise TooLong(f"it takes at most {column.max_length} characters")
    if column and not holds(column, text):
        raise OutOfRange("it is out of range")
    return text


# Special fields

_ON_CREATE = frozenset({"date-created", "user-created", "role-created"})
_ON_UPDATE = frozenset({"date-updated", "user-updated", "role-updated"})


def _stamp(field: Field, writer: Writer, markers: frozenset[str]) -> str | None:
    kind = next(iter(markers.intersection(field.special))).partition("-")[0]
    return _known(field, writer, kind)


def _known(field: Field, writer: Writer, kind: str) -> str | None:
    if kind == "date":
        return _moment(field, writer.moment)
    return writer.user if kind == "user" else writer.role


def _moment(field: Field, moment: datetime) -> str:
    return field.type.parse(moment if field.type.family is Family.MOMENT else moment.isoformat())


# What must be there


def _is_required(field: Field) -> bool:
    column = field.column
    assert column
    fills_itself = column.default is not None or column.auto_increment or column.generated
    return bool(field.meta and field.meta.get("required")) or not (column.nullable or fills_itself)


def _is_nullable(field: Field) -> bool:
    return field.column is not None and field.column.nullable


def _counts_up(field: Field) -> bool:
    return field.column is not None and field.column.auto_increment and not field.column.nullable


def _takes_null(field: Field) -> bool:
    assert field.column
    return field.column.nullable and not (field.meta and field.meta.get("required"))


def _missing(field: Field) -> Problem:
    return Problem(
        "FAILED_VALIDATION",
        f'Validation failed for "{field.name}": it is required.',
        {"collection": field.collection, "field": field.name, "path": [field.name], "type": "required"},
    )


def _invalid(reason: str, collection: str, field: str | None = None) -> Problem:
    at = f'"{field}" of "{collection}"' if field else f'An item of "{collection}"'
    extensions = {"reason": reason, "collection": collection} | ({"field": field} if field else {})
    return Problem("INVALID_PAYLOAD", f"Invalid payload. {at}: {reason}.", extensions)


def _fault(code: str, reason: str, field: Field) -> Problem:
    place = {"collection": field.collection, "field": field.name}
    return Problem(code, f'The value of "{field.name}" does not fit: {reason}.', place)
