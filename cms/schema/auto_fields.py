"""Fields that the service fills by itself in every row, and fields that must have a value."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from cms.errors import Problem
from cms.schema.model import Collection, Field
from cms.schema.payload import MutableRowValues, RowValues, converter
from cms.schema.types.date_times import present_moment


@dataclass(frozen=True, slots=True)
class Writer:
    """The user who writes and the moment: the values of the automatic fields."""

    user: str | None
    role: str | None
    moment: datetime

    @classmethod
    def now(cls, user: str | None, role: str | None) -> Writer:
        return cls(user, role, present_moment())


class AutoField(NamedTuple):
    """A field that the service fills, and the kind of its value: `date`, `user` or `role`."""

    field: Field
    kind: str


@dataclass(frozen=True, slots=True)
class AutoFields:
    """How the fields of a collection are completed in every new row, or in every changed one."""

    automatic: tuple[AutoField, ...]
    ignored: tuple[str, ...]
    """Fields that the database fills, or the service in the other case; values of clients for them
    are dropped."""
    uuids: tuple[str, ...]
    """Fields that get a new UUID where the client sends none."""
    sequence_keys: tuple[str, ...]
    """Fields that a sequence fills where the client sends none, or null."""
    archive_defaults: RowValues
    required: tuple[Field, ...]
    """The fields that a new row must have, and that must not be null."""
    required_references: tuple[Field, ...]
    """Those of them that have several columns."""
    not_null: tuple[Field, ...]
    """The fields that a row may lack, but that must not be null."""


@dataclass(frozen=True, slots=True)
class AutoValues:
    """The values of the automatic fields in the rows of one writer.

    `fixed` go into every row, `if_sent` only into rows that name the field.
    """

    fixed: RowValues
    if_sent: RowValues


NO_AUTO_VALUES = AutoValues({}, {})


def auto_fields_of(collection: Collection, *, new: bool) -> AutoFields:
    """Return how fields are completed in new rows, or in changed ones."""
    markers = _ON_CREATE if new else _ON_UPDATE
    fields: list[Field] = []
    automatic: list[AutoField] = []
    not_null: list[Field] = []
    for field in collection.columns:
        if _is_generated(field):
            continue
        fields.append(field)
        if markers.intersection(field.special):
            # `user-updated` is of the kind `user`.
            kind = next(iter(markers.intersection(field.special))).partition("-")[0]
            automatic.append(AutoField(field, kind))
        if not _is_required(field) and not field.takes_null:
            not_null.append(field)
    return AutoFields(
        automatic=tuple(automatic),
        ignored=(
            *(name for name in collection.key_names if _is_generated(collection.fields[name])),
            *_names(fields, lambda field: _is_ignored(field, markers)),
        ),
        uuids=_names(fields, lambda field: "uuid" in field.special),
        sequence_keys=_names(fields, _is_sequence_key),
        archive_defaults=archive_defaults(collection),
        required=tuple(field for field in fields if _is_required_of(collection, field)),
        required_references=tuple(
            field for field in collection.fields.values() if field.parts and field.is_required
        ),
        not_null=tuple(not_null),
    )


def auto_values_of(auto_fields: AutoFields, writer: Writer) -> AutoValues:
    """Return the values of the automatic fields.

    A writer without a user or role does not overwrite a field that takes no null, unless the row
    names it.
    """
    fixed: MutableRowValues = {}
    if_sent: MutableRowValues = {}
    for field, kind in auto_fields.automatic:
        value = _auto_value(field, kind, writer)
        # The service itself and anonymous callers have no user: then `user_updated` becomes null,
        # which says that no user wrote last.
        if value is not None or (field.column and field.column.is_nullable):
            fixed[field.name] = value
        else:
            if_sent[field.name] = value
    return AutoValues(fixed, if_sent)


def complete_new(
    values: MutableRowValues, auto_fields: AutoFields, auto_values: AutoValues
) -> list[Problem]:
    """Fill in the automatic values of a new row, and return a problem for each missing field."""
    _remove_ignored(values, auto_fields)
    _fill(values, auto_values)
    # Keys are made here and not by a default of the column, so that other rows of the same write
    # can point to them.
    for name in auto_fields.uuids:
        if values.get(name) is None:
            values[name] = str(uuid.uuid4())
    for name in auto_fields.sequence_keys:
        # Clients send null for a key that they leave to the sequence.
        if _is_null(values, name):
            del values[name]
    for name, value in auto_fields.archive_defaults.items():
        values.setdefault(name, value)
    problems = [missing(field) for field in auto_fields.required if values.get(field.name) is None]
    problems += [missing(field) for field in auto_fields.not_null if _is_null(values, field.name)]
    for field in auto_fields.required_references:
        if any(values.get(part.name) is None for part in field.parts):
            problems.append(missing(field))
    return problems


def complete_change(
    values: MutableRowValues, auto_fields: AutoFields, auto_values: AutoValues
) -> list[Problem]:
    """Fill in the automatic values of a changed row, and return a problem for each wrong null."""
    _remove_ignored(values, auto_fields)
    # A row that names nothing but its key does not change, and so gets no new date.
    if values:
        _fill(values, auto_values)
    # A field that a change does not name keeps the value that it has.
    problems = [missing(field) for field in auto_fields.required if _is_null(values, field.name)]
    problems += [missing(field) for field in auto_fields.not_null if _is_null(values, field.name)]
    for field in auto_fields.required_references:
        if any(_is_null(values, part.name) for part in field.parts):
            problems.append(missing(field))
    return problems


def _is_null(values: MutableRowValues, name: str) -> bool:
    """Tell whether a row has a field with null as its value."""
    return name in values and values[name] is None


def _remove_ignored(values: MutableRowValues, auto_fields: AutoFields) -> None:
    """Drop the fields that clients cannot fill."""
    for name in auto_fields.ignored:
        values.pop(name, None)


def _fill(values: MutableRowValues, auto_values: AutoValues) -> None:
    """Set the automatic values, whatever the client sent: nobody can write in another's name."""
    values.update(auto_values.fixed)
    for name, value in auto_values.if_sent.items():
        if name in values:
            values[name] = value


def _is_generated(field: Field) -> bool:
    return field.column is not None and field.column.is_generated


def _names(fields: list[Field], test: Callable[[Field], bool]) -> tuple[str, ...]:
    return tuple(field.name for field in fields if test(field))


def _is_ignored(field: Field, markers: frozenset[str]) -> bool:
    """Tell whether the service fills a field in the other case, so that clients cannot.

    A new row keeps the value of a required field such as `date_updated`: nothing else could fill
    it.
    """
    other_markers = (_ON_CREATE | _ON_UPDATE) - markers
    if not other_markers.intersection(field.special):
        return False
    # An update drops `date_created` in any case: it is the moment of the creation.
    return markers is _ON_UPDATE or not _is_required(field)


# Special fields

_ON_CREATE = frozenset({"date-created", "user-created", "role-created"})
_ON_UPDATE = frozenset({"date-updated", "user-updated", "role-updated"})


def _auto_value(field: Field, kind: str, writer: Writer) -> str | None:
    if kind == "date":
        return _moment(field, writer.moment)
    if kind == "user":
        return writer.user
    return writer.role


def _moment(field: Field, moment: datetime) -> str:
    if field.type.now_sql:
        return field.type.parse(moment)
    # A text column may have the marker as well, and takes the moment as ISO 8601.
    return field.type.parse(moment.isoformat())


# Required fields


def _is_required(field: Field) -> bool:
    column = field.column
    assert column
    if field.is_required:
        return True
    return not column.is_nullable and not column.is_filled_by_database


def _is_required_of(collection: Collection, field: Field) -> bool:
    """Tell whether a new row needs a value that no trigger may fill in."""
    is_left_to_triggers = collection.has_side_effects and field.meta is not None
    return field.is_required or (_is_required(field) and not is_left_to_triggers)


def _is_sequence_key(field: Field) -> bool:
    return (
        field.column is not None
        and field.column.has_auto_increment
        and not field.column.is_nullable
    )


def missing(field: Field) -> Problem:
    """Return the problem of a required field without a value."""
    return Problem(
        "FAILED_VALIDATION",
        f'Validation failed for "{field.name}": it is required.',
        {
            "collection": field.collection,
            "field": field.name,
            "path": [field.name],
            "type": "required",
        },
    )


# Archiving: one field of a collection tells archived items from active ones

_ARCHIVE_VALUES = ("archive_value", "unarchive_value")


def archive_defaults(collection: Collection) -> RowValues:
    """Return the value of the archive field for new items when nothing else fills it."""
    field = collection.archive_field
    if collection.meta is None or field is None or field.column is None:
        return {}
    # A default of the column is what its owner has chosen for new rows; the setting only fills the
    # gap.
    value = collection.meta.get("unarchive_value")
    if value is None or field.column.is_filled_by_database:
        return {}
    try:
        return {field.name: converter(field)(value)}
    except ValueError:
        # Another program has changed the table since the setting was checked.
        return {}


def invalid_archive_settings(collection: Collection) -> dict[str, str]:
    """Return the settings that do not fit the archive field, each with the reason."""
    field = collection.archive_field
    meta = collection.meta or {}
    if field is None or field.column is None:
        return {}
    if field.is_secret:
        return {"archive_field": "nobody can see what it holds"}
    reasons: dict[str, str] = {}
    for name in _ARCHIVE_VALUES:
        try:
            if meta.get(name) is not None:
                converter(field)(meta[name])
        except ValueError as error:
            reasons[name] = f'"{meta[name]}" does not fit the archive field: {error}'
    return reasons
