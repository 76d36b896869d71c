"""The structure as a document that is the same on every installation (docs/environments.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from cms import jsontext
from cms.mappings import without
from cms.schema.model import Catalogue, Collection, Kind, Relation
from cms.schema.records import (
    Record,
    collection_record,
    relation_record,
    requested_field_record,
)
from cms.schema_sync.content import read_content
from cms.schema_sync.sections import (
    COLLECTIONS,
    FIELDS,
    RELATIONS,
    STRUCTURE,
    RecordsByName,
    records_by_name,
)
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.project_info import DIRECTUS_VERSION
from cms.store.store import Store
from cms.store.write_attempts import require_admin

VERSION = 1
VENDOR = "postgres"


@dataclass(frozen=True, slots=True)
class SchemaSnapshot:
    """The records of each section, by name and in the order of their names, without ids."""

    sections: Mapping[str, RecordsByName]

    @property
    def structure(self) -> SchemaSnapshot:
        """The sections of the structure alone."""
        return SchemaSnapshot({section: self.sections[section] for section in STRUCTURE})

    @property
    def content(self) -> SchemaSnapshot:
        """The sections that are there on request."""
        return SchemaSnapshot(without(self.sections, STRUCTURE))

    def as_document(self) -> Record:
        document: Record = {"version": VERSION, "directus": DIRECTUS_VERSION, "vendor": VENDOR}
        for section, records in self.sections.items():
            document[section] = list(records.values())
        return document

    @property
    def hash(self) -> str:
        """The SHA-256 of the document, in hexadecimal digits."""
        return sha256(jsontext.dumps(self.as_document())).hexdigest()


def read_snapshot(store: Store, identity: Identity, *, include: Iterable[str] = ()) -> Record:
    """Return the document of the structure, and of the content of the sections of `include`.

    Raises `Refused` FORBIDDEN unless for administrators.
    """
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            require_admin(context.actor)
            structure = snapshot_of(context.snapshot.catalogue)
            answer = with_content(structure, context, include=include).as_document()
    return answer


def with_content(
    structure: SchemaSnapshot, context: RequestContext, *, include: Iterable[str]
) -> SchemaSnapshot:
    """Return a snapshot with further sections, as they are now."""
    content = read_content(include, context.fetch, context.snapshot.catalogue)
    return SchemaSnapshot({**structure.sections, **content})


def snapshot_of(catalogue: Catalogue) -> SchemaSnapshot:
    """Return the snapshot of a structure, without system collections and views."""
    names: set[str] = set()
    collections: list[Record] = []
    fields: list[Record] = []
    for collection in filter(_is_own, catalogue.collections.values()):
        names.add(collection.name)
        collections.append(collection_record(collection))
        fields += _field_records(collection)
    relations = _relation_records(catalogue.relations, names=names, catalogue=catalogue)
    return SchemaSnapshot(
        {
            COLLECTIONS: records_by_name(COLLECTIONS, collections),
            FIELDS: records_by_name(FIELDS, fields),
            RELATIONS: records_by_name(RELATIONS, list(relations)),
        }
    )


def _is_own(collection: Collection) -> bool:
    # No request could create a view.
    return not collection.is_system and collection.kind is not Kind.VIEW


def _field_records(collection: Collection) -> Iterable[Record]:
    for name in sorted(collection.fields):
        yield _without_meta_id(requested_field_record(collection.fields[name]))


def _relation_records(
    relations: Iterable[Relation], *, names: set[str], catalogue: Catalogue
) -> Iterable[Record]:
    for relation in sorted(relations, key=lambda item: (item.many_collection, item.many_field)):
        if relation.many_collection not in names or _leads_to_view(relation, catalogue):
            continue
        record = _without_meta_id(relation_record(relation))
        schema = record["schema"]
        # A constraint keeps its name when its field is renamed, and so tells how it was made.
        if isinstance(schema, dict):
            record["schema"] = without(schema, ("constraint_name",))
        yield record


def _leads_to_view(relation: Relation, catalogue: Catalogue) -> bool:
    target = catalogue.collections.get(relation.one_collection or "")
    return target is not None and target.kind is Kind.VIEW


def _without_meta_id(record: Record) -> Record:
    meta = record["meta"]
    if not isinstance(meta, dict):
        return record
    return {**record, "meta": without(meta, ("id",))}
