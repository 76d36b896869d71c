"""The sections of a snapshot, and how a record is named in each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cms.mappings import without, without_none
from cms.schema.meta_settings import READ_ONLY_KEYS
from cms.schema.records import Record

COLLECTIONS = "collections"
FIELDS = "fields"
RELATIONS = "relations"

KEYS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        COLLECTIONS: ("collection",),
        FIELDS: ("collection", "field"),
        RELATIONS: ("collection", "field"),
        "roles": ("name",),
        "permissions": ("role", "collection", "action"),
        "flows": ("name",),
        "dashboards": ("name",),
        "settings": (),
    }
)
"""The members that name a record, for each section."""

STRUCTURE = (COLLECTIONS, FIELDS, RELATIONS)

GROUPS = ("meta", "schema")
"""The members of a record of the structure that hold its settings."""

NAMELESS = frozenset({"permissions"})
"""Sections whose records have no name of their own: all that they say is their name."""

NO_NAME = "it must be a name"
"""The refusal of a member that can name no record."""

RecordName = tuple[str, ...]
"""The values of the members that name a record."""

RecordsByName = Mapping[RecordName, Record]


def is_name(section: str, key: str, value: object) -> bool:
    """Tell whether a member can name a record; a permission of the Public role has no role."""
    return isinstance(value, str) or (section in NAMELESS and key == "role" and value is None)


def record_name(section: str, record: Record) -> RecordName:
    """Return the name of a record; the members of the name must be there."""
    # The Public role is null, and no role has an empty name.
    name = tuple(str(record[key] or "") for key in KEYS[section])
    if section in NAMELESS:
        values = without_none(record)
        return (*name, json.dumps(values, sort_keys=True, default=str))
    return name


def records_by_name(section: str, records: Sequence[Record]) -> dict[RecordName, Record]:
    return {record_name(section, record): record for record in records}


def settable(record: Record) -> Record:
    """Return a record without members that only answers have, such as the types of columns."""
    result = dict(record)
    for group in GROUPS:
        value = record.get(group)
        if isinstance(value, Mapping):
            result[group] = without(value, READ_ONLY_KEYS)
    return result
