"""Records as the payloads of calls that create or change them."""

from __future__ import annotations

from cms.schema.records import Record
from cms.schema_sync.comparison import RecordDiff
from cms.schema_sync.sections import GROUPS, settable


def create_payload(record: Record, *members: str) -> Record:
    """Return the payload that creates a record: its settings, and the members that are named."""
    settings = settable(record)
    result: Record = {}
    for key in (*members, *GROUPS):
        if key in settings:
            result[key] = settings[key]
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
