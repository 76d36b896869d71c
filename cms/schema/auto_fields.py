"""What the service sees to in every row: fields that fill themselves, and what must be there (decisions, section 5)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cms.errors import Problem
from cms.schema.archive import archive_defaults
from cms.schema.model import Collection, Field
from cms.schema.payload import Values, invalid_item
from cms.schema.types import Family

PENDING_KEY = ""
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
class AutoFields:
    """What is to be seen to in every row of a collection that is made, or that changes: most fields have nothing."""

    key: Field | None
    automatic: tuple[tuple[Field, str], ...]
    """The fields that fill themselves, each with its kind: date, user, role."""
    ignored: tuple[str, ...]
    uuids: tuple[str, ...]
    sequence_keys: tuple[str, ...]
    archive_defaults: Values
    required: tuple[tuple[Field, str | None], ...]
    """What must not be null, each with what it counts as when nothing is said of it: null where it is required."""


@dataclass(frozen=True, slots=True)
class AutoValues:
    """What the fields that fill themselves hold in the rows of one writer, in all or in those that name them."""

    fixed: Values
    if_sent: Values


NO_AUTO_VALUES = AutoValues({}, {})


def auto_fields_of(collection: Collection, *, new: bool) -> AutoFields:
    """Return what rows need that are made, or that change."""
    return _auto_fields_of(collection, _ON_CREATE if new else _ON_UPDATE)


def auto_values_of(auto_fields: AutoFields, writer: Writer) -> AutoValues:
    """Return what fills the fields that fill themselves; somebody without a user or role leaves what must be there."""
    said = [(found, _auto_value(found, kind, writer)) for found, kind in auto_fields.automatic]
    fixed = {found.name: value for found, value in said if value is not None or _is_nullable(found)}
    return AutoValues(
        fixed, {found.name: value for found, value in said if found.name not in fixed}
    )


def complete_new(values: Values, auto_fields: AutoFields, auto_values: AutoValues) -> list[Problem]:
    """Fill what a new row gets by itself, and return which required fields are missing."""
    _remove_ignored(values, auto_fields)
    _fill(values, auto_values)
    for name in auto_fields.uuids:
        if values.get(name) is None:
            values[name] = str(uuid.uuid4())
    for name in auto_fields.sequence_keys:
        if values.get(name, "") is None:
            del values[name]  # null is how clients say that a key is not theirs to choose
    for name, value in auto_fields.archive_defaults.items():
        values.setdefault(name, value)
    if (
        auto_fields.key
        and auto_fields.key.column
        and auto_fields.key.column.is_generated
        and auto_fields.key.name in values
    ):
        return [
            invalid_item("the database fills it", auto_fields.key.collection, auto_fields.key.name)
        ]
    return [
        missing(found)
        for found, unsaid in auto_fields.required
        if values.get(found.name, unsaid) is None
    ]


def complete_change(
    values: Values, auto_fields: AutoFields, auto_values: AutoValues
) -> list[Problem]:
    """Stamp a row that changes, and return which fields are null that must not be."""
    _remove_ignored(values, auto_fields)
    if len(values) > (auto_fields.key is not None and auto_fields.key.name in values):
        _fill(values, auto_values)
    return [
        missing(found) for found, _ in auto_fields.required if values.get(found.name, "") is None
    ]


def _remove_ignored(values: Values, auto_fields: AutoFields) -> None:
    """Leave out what the service stamps at another time."""
    for name in auto_fields.ignored:
        values.pop(name, None)


def _fill(values: Values, auto_values: AutoValues) -> None:
    """Write what is the service's to write, whatever the client sent: nobody can write in another's name."""
    values.update(auto_values.fixed)
    for name, said in auto_values.if_sent.items():
        if name in values:
            values[name] = said


def _auto_fields_of(collection: Collection, markers: frozenset[str]) -> AutoFields:
    key = collection.key if collection.primary_key else None
    fields = [
        found
        for found in collection.columns
        if found is key or not (found.column and found.column.is_generated)
    ]
    others = (_ON_CREATE | _ON_UPDATE) - markers

    def can_wait(found: Field) -> bool:
        return markers is _ON_UPDATE or not _is_required(found)

    return AutoFields(
        key=key,
        automatic=tuple(
            (found, _auto_kind(found, markers))
            for found in fields
            if markers.intersection(found.special)
        ),
        ignored=tuple(
            found.name for found in fields if others.intersection(found.special) and can_wait(found)
        ),
        uuids=_names(fields, lambda found: "uuid" in found.special),
        sequence_keys=_names(fields, _counts_up),
        archive_defaults=archive_defaults(collection),
        required=(
            *((found, None) for found in fields if _is_required(found)),
            *((found, "") for found in fields if not (_is_required(found) or takes_null(found))),
        ),
    )


def _names(fields: list[Field], wanted: Callable[[Field], bool]) -> tuple[str, ...]:
    return tuple(found.name for found in fields if wanted(found))


# Special fields

_ON_CREATE = frozenset({"date-created", "user-created", "role-created"})
_ON_UPDATE = frozenset({"date-updated", "user-updated", "role-updated"})


def _auto_kind(found: Field, markers: frozenset[str]) -> str:
    return next(iter(markers.intersection(found.special))).partition("-")[0]


def _auto_value(found: Field, kind: str, writer: Writer) -> str | None:
    if kind == "date":
        return _moment(found, writer.moment)
    return writer.user if kind == "user" else writer.role


def _moment(found: Field, moment: datetime) -> str:
    return found.type.parse(moment if found.type.family is Family.MOMENT else moment.isoformat())


# What must be there


def _is_required(found: Field) -> bool:
    column = found.column
    assert column
    return bool(found.meta and found.meta.get("required")) or not (
        column.is_nullable or column.is_filled_by_database
    )


def _is_nullable(found: Field) -> bool:
    return found.column is not None and found.column.is_nullable


def _counts_up(found: Field) -> bool:
    return found.column is not None and found.column.auto_increment and not found.column.is_nullable


def takes_null(found: Field) -> bool:
    """Tell whether a field may hold nothing."""
    assert found.column
    return found.column.is_nullable and not (found.meta and found.meta.get("required"))


def missing(found: Field) -> Problem:
    """Return the problem of a field that must be there."""
    return Problem(
        "FAILED_VALIDATION",
        f'Validation failed for "{found.name}": it is required.',
        {
            "collection": found.collection,
            "field": found.name,
            "path": [found.name],
            "type": "required",
        },
    )
