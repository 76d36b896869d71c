"""Archiving: one field says which items are archived, and which are active (specification, section 3)."""

from __future__ import annotations

from cms.schema.model import Collection
from cms.schema.payload import Values, converter

_SETTINGS = ("archive_value", "unarchive_value")


def archive_defaults(collection: Collection) -> Values:
    """Return what new items hold in the archive field when nothing else fills it."""
    found = collection.archive_field
    said = collection.meta.get("unarchive_value") if collection.meta else None
    if found is None or said is None or found.column is None or found.column.is_filled_by_database:
        return {}
    try:
        return {found.name: converter(found)(said)}
    except ValueError:  # the table was changed behind the service's back
        return {}


def invalid_settings(collection: Collection) -> dict[str, str]:
    """Return which settings hold what the archive field does not take, each with the reason."""
    found, meta = collection.archive_field, collection.meta or {}
    if found is None or found.column is None:
        return {}
    if found.is_secret:
        return {"archive_field": "nobody can see what it holds"}
    told: dict[str, str] = {}
    for name in _SETTINGS:
        try:
            if meta.get(name) is not None:
                converter(found)(meta[name])
        except ValueError as error:
            told[name] = f'"{meta[name]}" does not fit the archive field: {error}'
    return told
