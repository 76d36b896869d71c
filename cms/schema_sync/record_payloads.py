"""Records as the payloads of calls that create or change them."""

from __future__ import annotations

from collections.abc import Mapping

from cms.mappings import without
from cms.schema.records import Record
from cms.schema_sync.comparison import RecordDiff
from cms.schema_sync.sections import GROUPS, RecordsByName, settable

_LATER = ("group", "item_duplication_fields")
"""Settings of a collection that name other collections, which may not be there yet."""


def create_payload(record: Record, *members: str) -> Record:
    """Return the payload that creates a record: its settings, and the members that are named."""
    settings = settable(record)
    result: Record = {}
    for key in (*members, *GROUPS):
        if key in settings:
            result[key] = settings[key]
    return result


def new_collection(record: Record, fields: list[Record]) -> Record:
    """Return the payload that creates a collection with its fields, given as payloads."""
    payload = create_payload(record, "collection")
    meta = payload.get("meta")
    if isinstance(meta, Mapping):
        payload["meta"] = without(meta, _LATER)
    return {**payload, "fields": fields}


def fields_by_collection(fields: RecordsByName) -> dict[str, list[Record]]:
    """Return the payloads that create fields, by the names of their collections."""
    result: dict[str, list[Record]] = {}
    for (collection, _), record in fields.items():
        result.setdefault(collection, []).append(create_payload(record, "field", "type"))
    return result


def update_payload(diff: RecordDiff, *members: str) -> Record:
    """Return the payload that changes a record: the groups of settings that differ, whole."""
    assert diff.before and diff.after
    before = settable(diff.before)
    after = settable(diff.after)
    result = {key: after[key] for key in members}
    for group in GROUPS:
        if before[group] != after[group]:
            result[group] = after[group]
    return result
