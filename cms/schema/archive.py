"""Archiving: one field of a collection tells archived items from active ones."""

from __future__ import annotations

from cms.schema.model import Collection
from cms.schema.payload import RowValues, converter

_SETTINGS = ("archive_value", "unarchive_value")


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


def invalid_settings(collection: Collection) -> dict[str, str]:
    """Return the settings that do not fit the archive field, each with the reason."""
    field = collection.archive_field
    meta = collection.meta or {}
    if field is None or field.column is None:
        return {}
    if field.is_secret:
        return {"archive_field": "nobody can see what it holds"}
    reasons: dict[str, str] = {}
    for name in _SETTINGS:
        try:
            if meta.get(name) is not None:
                converter(field)(meta[name])
        except ValueError as error:
            reasons[name] = f'"{meta[name]}" does not fit the archive field: {error}'
    return reasons
