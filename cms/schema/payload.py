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
    return _all(collection, items, writer, _new)


def values_of_change(collection: Collection, items: Sequence[object], writer: Writer) -> list[Values]:
    """Return the columns to change, the primary key among them where the client sent it."""
    return _all(collection, items, writer, _change)


class TooLong(ValueError):
    """A text with more characters than its column takes."""


_Check = Callable[[Collection, Values, Writer], list[Problem]]


def _all(collection: Collection, items: Sequence[object], writer: Writer, check: _Check) -> list[Values]:
    problems: list[Problem] = []
    found: list[Values] = []
    for index, item in enumerate(items):
        place = {"index": index} if len(items) > 1 else {}
        values, faults = _checked(collection, item, writer, check)
        problems += [Problem(fault.code, fault.message, {**fault.extensions, **place}) for fault in faults]
        found.append(values)
    if problems:
        raise Refused(problems)
    return found


def _checked(collection: Collection, item: object, writer: Writer, check: _Check) -> tuple[Values, list[Problem]]:
    values, faults = _parse(collection, item, writer)
    told = {fault.extensions.get("field") for fault in faults}
    if isinstance(item, Mapping):
        faults += [fault for fault in check(collection, values, writer) if fault.extensions["field"] not in told]
    return values, faults


def _new(collection: Collection, values: Values, writer: Writer) -> list[Problem]:
    """Fill what a new row gets by itself, then tell which required fields are missing."""
    _fill(collection, values, writer, _ON_CREATE)
    for field in collection.columns:
        if values.get(field.name) is None and "uuid" in field.special:
            values[field.name] = str(uuid.uuid4())
        elif _counts_up(field) and values.get(field.name) is None:
            values.pop(field.name, None)  # null is how clients say that a key is not theirs to choose
    return [_missing(field) for field in collection.columns if _is_lacking(field, values)]


def _change(collection: Collection, values: Values, writer: Writer) -> list[Problem]:
    _fill(collection, values, writer, _ON_UPDATE)
    fields = [collection.fields[name] for name in values]
    return [_missing(field) for field in fields if values[field.name] is None and not _takes_null(field)]


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


def _fill(collection: Collection, values: Values, writer: Writer, markers: frozenset[str]) -> None:
    """Write what is the service's to write, whatever the client sent: nobody can write in another's name."""
    for field in collection.columns:
        for marker in markers.intersection(field.special):
            known = _known(field, writer, marker.partition("-")[0])
            if known is not None or field.name in values or (field.column and field.column.nullable):
                values[field.name] = known


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


def _is_lacking(field: Field, values: Values) -> bool:
    if values.get(field.name) is not None:
        return False
    return _is_required(field) or (field.name in values and not _takes_null(field))


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
