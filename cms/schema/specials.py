"""What the service sees to in every row: fields that fill themselves, and what must be there (decisions, section 5)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cms.errors import Problem
from cms.schema.archive import active
from cms.schema.model import Collection, Field
from cms.schema.payload import Values, invalid
from cms.schema.types import Family

AWAITED = ""
"""Stands in a row for the key of a related item that is still to be written."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, and when: what the special fields are filled with."""

    user: str | None
    role: str | None
    moment: datetime

    @classmethod
    def now(cls, user: str | None, role: str | None) -> Writer:
        return cls(user, role, datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Duties:
    """What is to be seen to in every row of a collection that is made, or that changes: most fields have nothing."""

    key: Field | None
    stamped: tuple[tuple[Field, str], ...]
    """The fields that fill themselves, each with its kind: date, user, role."""
    unsendable: tuple[str, ...]
    uuids: tuple[str, ...]
    counting: tuple[str, ...]
    active: Values
    needed: tuple[tuple[Field, str | None], ...]
    """What must not be null, each with what it counts as when nothing is said of it: null where it is required."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """What the fields that fill themselves hold in the rows of one writer, in all or in those that name them."""

    always: Values
    where_named: Values


UNSTAMPED = Stamps({}, {})


def duties_of(collection: Collection, *, new: bool) -> Duties:
    """Return what rows need that are made, or that change."""
    return _duties(collection, _ON_CREATE if new else _ON_UPDATE)


def stamps_of(duties: Duties, writer: Writer) -> Stamps:
    """Return what fills the fields that fill themselves; somebody without a user or role leaves what must be there."""
    said = [(found, _stamp(found, kind, writer)) for found, kind in duties.stamped]
    always = {found.name: value for found, value in said if value is not None or _is_nullable(found)}
    return Stamps(always, {found.name: value for found, value in said if found.name not in always})


def complete_new(values: Values, duties: Duties, stamps: Stamps) -> list[Problem]:
    """Fill what a new row gets by itself, and return which required fields are missing."""
    _drop(values, duties)
    _fill(values, stamps)
    for name in duties.uuids:
        if values.get(name) is None:
            values[name] = str(uuid.uuid4())
    for name in duties.counting:
        if values.get(name, "") is None:
            del values[name]  # null is how clients say that a key is not theirs to choose
    for name, value in duties.active.items():
        values.setdefault(name, value)
    if duties.key and duties.key.column and duties.key.column.generated and duties.key.name in values:
        return [invalid("the database fills it", duties.key.collection, duties.key.name)]
    return [missing(found) for found, unsaid in duties.needed if values.get(found.name, unsaid) is None]


def complete_change(values: Values, duties: Duties, stamps: Stamps) -> list[Problem]:
    """Stamp a row that changes, and return which fields are null that must not be."""
    _drop(values, duties)
    if len(values) > (duties.key is not None and duties.key.name in values):
        _fill(values, stamps)
    return [missing(found) for found, _ in duties.needed if values.get(found.name, "") is None]


def _drop(values: Values, duties: Duties) -> None:
    """Leave out what the service stamps at another time."""
    for name in duties.unsendable:
        values.pop(name, None)


def _fill(values: Values, stamps: Stamps) -> None:
    """Write what is the service's to write, whatever the client sent: nobody can write in another's name."""
    values.update(stamps.always)
    for name, said in stamps.where_named.items():
        if name in values:
            values[name] = said


def _duties(collection: Collection, markers: frozenset[str]) -> Duties:
    key = collection.key if collection.primary_key else None
    fields = [found for found in collection.columns if found is key or not (found.column and found.column.generated)]
    others = (_ON_CREATE | _ON_UPDATE) - markers

    def can_wait(found: Field) -> bool:
        return markers is _ON_UPDATE or not _is_required(found)

    return Duties(
        key=key,
        stamped=tuple((found, _kind(found, markers)) for found in fields if markers.intersection(found.special)),
        unsendable=tuple(found.name for found in fields if others.intersection(found.special) and can_wait(found)),
        uuids=_names(fields, lambda found: "uuid" in found.special),
        counting=_names(fields, _counts_up),
        active=active(collection),
        needed=(
            *((found, None) for found in fields if _is_required(found)),
            *((found, "") for found in fields if not (_is_required(found) or takes_null(found))),
        ),
    )


def _names(fields: list[Field], wanted: Callable[[Field], bool]) -> tuple[str, ...]:
    return tuple(found.name for found in fields if wanted(found))


# Special fields

_ON_CREATE = frozenset({"date-created", "user-created", "role-created"})
_ON_UPDATE = frozenset({"date-updated", "user-updated", "role-updated"})


def _kind(found: Field, markers: frozenset[str]) -> str:
    return next(iter(markers.intersection(found.special))).partition("-")[0]


def _stamp(found: Field, kind: str, writer: Writer) -> str | None:
    if kind == "date":
        return _moment(found, writer.moment)
    return writer.user if kind == "user" else writer.role


def _moment(found: Field, moment: datetime) -> str:
    return found.type.parse(moment if found.type.family is Family.MOMENT else moment.isoformat())


# What must be there


def _is_required(found: Field) -> bool:
    column = found.column
    assert column
    return bool(found.meta and found.meta.get("required")) or not (column.nullable or column.fills_itself)


def _is_nullable(found: Field) -> bool:
    return found.column is not None and found.column.nullable


def _counts_up(found: Field) -> bool:
    return found.column is not None and found.column.auto_increment and not found.column.nullable


def takes_null(found: Field) -> bool:
    """Tell whether a field may hold nothing."""
    assert found.column
    return found.column.nullable and not (found.meta and found.meta.get("required"))


def missing(found: Field) -> Problem:
    """Return the problem of a field that must be there."""
    return Problem(
        "FAILED_VALIDATION",
        f'Validation failed for "{found.name}": it is required.',
        {"collection": found.collection, "field": found.name, "path": [found.name], "type": "required"},
    )
