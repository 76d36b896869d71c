"""Records of the collections, fields and relations that a caller may know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from cms.access.visible_structure import known_catalogue
from cms.errors import forbidden, not_found
from cms.schema.model import Catalogue, Collection, Relation
from cms.schema.records import Record, collection_record, field_record, relation_record
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store
from cms.structure.index_states import (
    with_field_states,
    with_relation_states,
    with_search_states,
)
from cms.structure.lookup import require_relation

# Collections


def list_collections(store: Store, identity: Identity) -> list[Record]:
    """Return the records of all collections that the caller may know of, by name."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            visible = _visible_structure(context).collections
            records = list(map(collection_record, visible.values()))
            answer = with_search_states(records, context.snapshot.catalogue, context.fetch)
    return answer


def read_collection(store: Store, identity: Identity, name: str) -> Record:
    """Return one record; raises `Refused` NOT_FOUND for administrators, else FORBIDDEN."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            record = collection_record(_visible_collection(context, name))
            answer = with_search_states([record], context.snapshot.catalogue, context.fetch)
    return answer[0]


# Fields


def list_fields(store: Store, identity: Identity, collection: str | None = None) -> list[Record]:
    """Return the records of the fields of one collection, or of all."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            if collection is None:
                # Fields of hidden collections are left out, and nothing reveals that there are any.
                owners = list(_visible_structure(context).collections.values())
            else:
                owners = [_visible_collection(context, collection)]
            records = [_field_record(owner, name) for owner in owners for name in owner.fields]
            answer = with_field_states(records, context.snapshot.catalogue, context.fetch)
    return answer


def read_field(store: Store, identity: Identity, collection: str, field: str) -> Record:
    """Return one record; raises `Refused` NOT_FOUND for administrators, else FORBIDDEN."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            record = _field_record(_visible_owner(context, collection, field), field)
            answer = with_field_states([record], context.snapshot.catalogue, context.fetch)
    return answer[0]


def _field_record(owner: Collection, name: str) -> Record:
    """Return the record of a field of a collection that has the fields that the caller may see."""
    field = owner.fields[name]
    record = field_record(field)
    meta = record["meta"]
    if field.parts and isinstance(meta, dict):
        meta["columns"] = [part.name for part in field.parts if part.name in owner.fields]
    return record


# Relations


def list_relations(store: Store, identity: Identity, collection: str | None = None) -> list[Record]:
    """Return the records of all relations, or of those that have the collection on a side."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            catalogue = _visible_structure(context)
            relations: Iterable[Relation] = catalogue.relations
            if collection is not None:
                relations = catalogue.relations_of(_visible_collection(context, collection).name)
            records = list(map(relation_record, relations))
            answer = with_relation_states(records, context.snapshot.catalogue, context.fetch)
    return answer


def read_relation(store: Store, identity: Identity, collection: str, field: str) -> Record:
    """Return the record of the relation of a field at either side; raises `Refused` NOT_FOUND."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            # A hidden field is refused like one that does not exist, before its relation is looked
            # up.
            _visible_owner(context, collection, field)
            relation = require_relation(_visible_structure(context), collection, field)
            record = relation_record(relation)
            answer = with_relation_states([record], context.snapshot.catalogue, context.fetch)
    return answer[0]


# What the caller may know of


def _visible_structure(context: RequestContext) -> Catalogue:
    """Return the structure that the caller may know of; raises `Refused` FORBIDDEN for none."""
    return known_catalogue(context.actor.policy, context.snapshot.catalogue)


def _visible_collection(context: RequestContext, name: str) -> Collection:
    """Return a collection that the caller may know of; raises `Refused` as reads of items do."""
    collection = _visible_structure(context).collections.get(name)
    return collection or _refuse_missing(context, "collection")


def _visible_owner(context: RequestContext, collection: str, field: str) -> Collection:
    """Return the collection of a field that the caller may know of; raises as reads of items do."""
    owner = _visible_collection(context, collection)
    if field not in owner.fields:
        _refuse_missing(context, "field")
    return owner


def _refuse_missing(context: RequestContext, kind: str) -> NoReturn:
    # Only administrators may learn that a name does not exist: to others it might be hidden.
    if context.actor.policy.is_admin:
        raise not_found(kind)
    raise forbidden()
