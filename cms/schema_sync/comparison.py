"""Two snapshots compared: the records that are new, deleted or changed, and the payloads of the
calls that make or change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from cms.mappings import without
from cms.schema.records import Record
from cms.schema.types import ALIAS
from cms.schema_sync.document import RENAMED_FROM
from cms.schema_sync.schema_snapshot import SchemaSnapshot
from cms.schema_sync.sections import (
    COLLECTIONS,
    FIELDS,
    GROUPS,
    KEYS,
    RELATIONS,
    STRUCTURE,
    RecordName,
    RecordsByName,
    settable,
)


@dataclass(frozen=True, slots=True)
class RecordDiff:
    """A record before and after; None where it is missing."""

    section: str
    name: RecordName
    before: Record | None
    after: Record | None

    def as_entry(self, former: str | None = None) -> Record:
        """Return the names of the record with its `diff`; a renamed field has its `former` name."""
        # The last part of a permission's name is the permission itself, which is in its diff. The
        # name of the Public role is empty.
        entry: Record = {
            key: name or None for key, name in zip(KEYS[self.section], self.name, strict=False)
        }
        if former is not None:
            entry[RENAMED_FROM] = former
        if self.section == RELATIONS:
            record = self.after or self.before or {}
            entry["related_collection"] = record.get("related_collection")
        entry["diff"] = self._differences()
        return entry

    def _differences(self) -> list[Record]:
        if self.before is None:
            return [{"kind": "N", "rhs": self.after}]
        if self.after is None:
            return [{"kind": "D", "lhs": self.before}]
        # Values that no client can set, such as `data_type`, are no differences.
        changes = differences(settable(self.before), settable(self.after))
        return [change.as_entry() for change in changes]


def compare(before: SchemaSnapshot, after: SchemaSnapshot) -> list[RecordDiff]:
    """Return the records in which two snapshots differ, in the order of sections and names.

    Members that a record of `after` leaves out count as unchanged. So does the primary key of a
    collection that has none in `after`: it was created with the table.
    """
    diffs = []
    if FIELDS in after.sections:
        after = _with_automatic_keys(before, after)
    for section, records in after.sections.items():
        present = before.sections[section]
        for name in sorted(present.keys() | records.keys()):
            diff = _diff(section, name, present.get(name), records.get(name))
            if diff is not None:
                diffs.append(diff)
    return diffs


def _with_automatic_keys(before: SchemaSnapshot, after: SchemaSnapshot) -> SchemaSnapshot:
    fields = dict(after.sections[FIELDS])
    collections_with_key = {
        collection for (collection, _), record in fields.items() if _is_key(record)
    }
    for name, record in before.sections[FIELDS].items():
        collection, _ = name
        has_table = _has_table(after.sections[COLLECTIONS].get((collection,)))
        if _is_key(record) and has_table and collection not in collections_with_key:
            fields.setdefault(name, record)
    return SchemaSnapshot({**after.sections, FIELDS: fields})


def _is_key(record: Record) -> bool:
    schema = record.get("schema")
    return isinstance(schema, Mapping) and schema.get("is_primary_key") is True


def _has_table(collection: Record | None) -> bool:
    return collection is not None and collection.get("schema", {}) is not None


def _diff(
    section: str, name: RecordName, before: Record | None, after: Record | None
) -> RecordDiff | None:
    if before is None or after is None:
        return RecordDiff(section, name, before, after)
    complete = _completed(section, after, before)
    changes = differences(settable(before), settable(complete))
    if next(changes, None) is None:
        return None
    return RecordDiff(section, name, before, complete)


def _completed(section: str, record: Record, present: Record) -> Record:
    """Return a record with the present values where it has none."""
    result = {**present, **record}
    if section not in STRUCTURE:
        return result
    # A `meta` or `schema` that is null or missing leaves all of its settings as they are.
    for group in GROUPS:
        result[group] = _completed_group(record.get(group), present[group])
    # Without a schema a collection is a folder, and an alias is no column.
    is_alias = record.get("type") == ALIAS.name
    if "schema" in record and record["schema"] is None and (section == COLLECTIONS or is_alias):
        result["schema"] = None
    return result


def _completed_group(value: object, present: object) -> object:
    if value is None:
        return present
    if isinstance(value, Mapping) and isinstance(present, Mapping):
        return {**present, **value}
    return value


def rename_entry(collection: str, field: str, *, former: str) -> Record:
    """Return the entry of a field that has another name, and no other change."""
    return {"collection": collection, "field": field, RENAMED_FROM: former, "diff": []}


def of_section(diffs: Sequence[RecordDiff], section: str) -> list[RecordDiff]:
    return [diff for diff in diffs if diff.section == section]


# Records as the payloads of calls that create or change them

_LATER = ("group", "item_duplication_fields")
"""Settings of a collection that name other collections, which may not be there yet."""


def create_payload(record: Record, *members: str) -> Record:
    """Return the payload that creates a record: its settings, and the members that are named."""
    settings = settable(record)
    return {key: settings[key] for key in (*members, *GROUPS) if key in settings}


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


Path: TypeAlias = tuple[str, ...]


class ChangeKind(StrEnum):
    NEW = "N"
    DELETED = "D"
    EDITED = "E"


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is new (`after`), deleted (`before`) or edited (both), at a path of keys.

    Arrays are edited as a whole: the kind A of other tools is never made.
    """

    kind: ChangeKind
    path: Path
    before: object = None
    after: object = None

    def as_entry(self) -> dict[str, object]:
        """Return `{kind, path, lhs, rhs}`."""
        entry: dict[str, object] = {"kind": self.kind.value}
        if self.path:
            entry["path"] = list(self.path)
        if self.kind is not ChangeKind.NEW:
            entry["lhs"] = self.before
        if self.kind is not ChangeKind.DELETED:
            entry["rhs"] = self.after
        return entry


def differences(before: object, after: object, path: Path = ()) -> Iterator[Difference]:
    """Yield the changes from one value to the other; none for equal values."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_mappings(before, after, path)
    elif not _is_same(before, after):
        yield Difference(ChangeKind.EDITED, path, before, after)


def _of_mappings(
    before: Mapping[str, object], after: Mapping[str, object], path: Path
) -> Iterator[Difference]:
    for key in sorted({*before, *after}):
        inner = (*path, key)
        if key not in before:
            yield Difference(ChangeKind.NEW, inner, after=after[key])
        elif key not in after:
            yield Difference(ChangeKind.DELETED, inner, before[key])
        else:
            yield from differences(before[key], after[key], inner)


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return False
        return all(_is_same(one[key], other[key]) for key in one)
    # In Python `1` and `true` are equal.
    return isinstance(one, bool) == isinstance(other, bool) and one == other
