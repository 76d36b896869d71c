"""Two snapshots compared: the records that are new, deleted or changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms.schema.records import Record
from cms.schema.types import ALIAS
from cms.schema_sync.differences import differences
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
        entry: Record = {}
        for key, name in zip(KEYS[self.section], self.name, strict=False):
            entry[key] = name or None
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
    collections_with_key: set[str] = set()
    for (collection, _), record in fields.items():
        if _is_key(record):
            collections_with_key.add(collection)
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


def mere_rename(collection: str, field: str, *, former: str) -> Record:
    """Return the entry of a field that has another name, and no other change."""
    return {"collection": collection, "field": field, RENAMED_FROM: former, "diff": []}


def of_section(diffs: Sequence[RecordDiff], section: str) -> list[RecordDiff]:
    return [diff for diff in diffs if diff.section == section]
