"""The sections of a snapshot, and what names a record in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

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
    }
)
"""The members that name a record, for each section of the structure."""

RecordName = tuple[str, ...]
"""The values of the members that name a record."""

Records = Mapping[RecordName, Record]


def name_of(section: str, record: Record) -> RecordName:
    """Return what names a record; its members must be there."""
    return tuple(str(record[key]) for key in KEYS[section])


def by_name(section: str, records: Sequence[Record]) -> dict[RecordName, Record]:
    return {name_of(section, record): record for record in records}


def settable(record: Record) -> Record:
    """Return a record without what only answers have, such as the types of columns."""
    result = dict(record)
    for group in ("meta", "schema"):
        value = record.get(group)
        if isinstance(value, Mapping):
            result[group] = {
                key: inner for key, inner in value.items() if key not in READ_ONLY_KEYS
            }
    return result
