"""The structure as a document that is the same on every installation (docs/environments.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cms.schema.model import Catalogue, Collection, Kind, Relation
from cms.schema.records import Record, collection_record, field_record, relation_record
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store, require_admin

VERSION = 1
VENDOR = "postgres"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The records of a structure, by name, without ids."""

    collections: tuple[Record, ...]
    fields: tuple[Record, ...]
    relations: tuple[Record, ...]

    def as_document(self) -> Record:
        return {
            "version": VERSION,
            "vendor": VENDOR,
            "collections": list(self.collections),
            "fields": list(self.fields),
            "relations": list(self.relations),
        }


def read_snapshot(store: Store, identity: Identity) -> Record:
    """Return the document of the structure; raises `Refused` FORBIDDEN unless for administrators."""
    return store.run_unversioned_read(identity, _snapshot_document)


def _snapshot_document(context: RequestContext) -> Record:
    require_admin(context.actor)
    return snapshot_of(context.snapshot.catalogue).as_document()


def snapshot_of(catalogue: Catalogue) -> Snapshot:
    """Return the snapshot of a structure, without system collections and views."""
    own = [item for item in catalogue.collections.values() if _is_own(item)]
    names = {collection.name for collection in own}
    fields: list[Record] = []
    for collection in own:
        fields += _field_records(collection)
    return Snapshot(
        tuple(map(collection_record, own)),
        tuple(fields),
        tuple(_relation_records(catalogue.relations, names=names, catalogue=catalogue)),
    )


def _is_own(collection: Collection) -> bool:
    # No request could create a view.
    return not collection.is_system and collection.kind is not Kind.VIEW


def _field_records(collection: Collection) -> Iterable[Record]:
    for name in sorted(collection.fields):
        yield _without_meta_id(field_record(collection.fields[name]))


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
            record["schema"] = {
                key: value for key, value in schema.items() if key != "constraint_name"
            }
        yield record


def _leads_to_view(relation: Relation, catalogue: Catalogue) -> bool:
    target = catalogue.collections.get(relation.one_collection or "")
    return target is not None and target.kind is Kind.VIEW


def _without_meta_id(record: Record) -> Record:
    meta = record["meta"]
    if not isinstance(meta, dict):
        return record
    return {**record, "meta": {key: value for key, value in meta.items() if key != "id"}}
