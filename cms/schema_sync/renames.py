"""Renamed fields: the renames of a document that are still to be done, and their effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from cms.schema.meta_settings import NAMING_SETTINGS
from cms.schema.model import Catalogue
from cms.schema.records import Record
from cms.schema.references import FieldChange
from cms.schema.system import COLLECTIONS as COLLECTION_RECORDS
from cms.schema.system import FIELDS as FIELD_RECORDS
from cms.schema.system import RELATIONS as RELATION_RECORDS
from cms.schema_sync.document import Rename
from cms.schema_sync.schema_snapshot import SchemaSnapshot
from cms.schema_sync.sections import COLLECTIONS, FIELDS, RELATIONS, RecordName, by_name
from cms.structure.stored_references import STORED_REFERENCES

_REFERENCES = {COLLECTIONS: COLLECTION_RECORDS, FIELDS: FIELD_RECORDS}
"""The tables of the sections whose settings hold rules, paths and templates."""

_FIELD_NAMES = {
    COLLECTIONS: NAMING_SETTINGS[COLLECTION_RECORDS],
    FIELDS: NAMING_SETTINGS[FIELD_RECORDS],
    RELATIONS: NAMING_SETTINGS[RELATION_RECORDS],
}
"""The settings that name a field of the record's own collection."""


def due_renames(snapshot: SchemaSnapshot, renames: Iterable[Rename]) -> list[Rename]:
    """Return the renames that a structure lacks, in an order in which each new name is free.

    One whose former name is gone, or whose new name is there, was done before.
    """
    names = set(snapshot.sections[FIELDS])
    due: list[Rename] = []
    waiting = sorted(renames)
    # A rename frees a name that another one may need: `b` to `c` has to come before `a` to `b`.
    while True:
        possible = filter(partial(_is_possible, names=names), waiting)
        rename = next(possible, None)
        if rename is None:
            return due
        waiting.remove(rename)
        names.remove((rename.collection, rename.before))
        due.append(rename)


def _is_possible(rename: Rename, *, names: set[RecordName]) -> bool:
    collection, before, after = rename
    return (collection, before) in names and (collection, after) not in names


def with_renames(
    snapshot: SchemaSnapshot, renames: Iterable[Rename], catalogue: Catalogue
) -> SchemaSnapshot:
    """Return the snapshot of a structure as it is after renames, in their order."""
    for rename in renames:
        change = FieldChange(catalogue, rename.collection, rename.before, rename.after)
        sections = dict(snapshot.sections)
        for section, records in snapshot.structure.sections.items():
            renamed = [_renamed(section, record, change) for record in records.values()]
            sections[section] = by_name(section, renamed)
        snapshot = SchemaSnapshot(sections)
    return snapshot


def _renamed(section: str, record: Record, change: FieldChange) -> Record:
    result = dict(record)
    if change.concerns(str(record["collection"]), str(record.get("field"))):
        result["field"] = change.after
    meta = record["meta"]
    if isinstance(meta, Mapping):
        result["meta"] = _renamed_in_meta(section, record, meta, change)
    return result


def _renamed_in_meta(
    section: str, record: Record, meta: Mapping[str, object], change: FieldChange
) -> Record:
    result = dict(meta)
    collection = str(record["collection"])
    for key in _FIELD_NAMES[section]:
        if change.concerns(collection, str(meta[key])):
            result[key] = change.after
    for reference in STORED_REFERENCES:
        if reference.table == _REFERENCES.get(section):
            key = reference.column
            field = record.get("field")
            described_field = field if isinstance(field, str) else None
            result[key] = reference.applied(meta[key], collection, described_field, change)
    # The list at the other side of a relation is a field there.
    if section == RELATIONS and change.concerns(
        str(record["related_collection"]), str(meta["one_field"])
    ):
        result["one_field"] = change.after
    return result
