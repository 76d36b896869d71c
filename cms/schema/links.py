"""Relations as clients define them, checked against the catalogue (specification, section 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cms.errors import Problem, Refused, invalid_payload
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.names import fault_of_collection_name, fault_of_name
from cms.schema.settings import RELATION_META, RELATION_SCHEMA, Settings, parse_settings


@dataclass(frozen=True, slots=True)
class RelationDefinition:
    """A many-to-one relation to be made; without `related` it is many-to-any."""

    collection: str
    field: str
    related: str | None
    meta: Settings
    schema: Settings


@dataclass(frozen=True, slots=True)
class JunctionDefinition:
    """A many-to-many relation to be made: `field` of `collection` lists `related` through the junction."""

    collection: str
    field: str
    related: str
    junction: str
    near: str
    far: str
    meta: Settings
    schema: Settings


def parse_relation(
    payload: Mapping[str, object], catalogue: Catalogue
) -> RelationDefinition | JunctionDefinition:
    """Read the body of POST /relations; raises `Refused` INVALID_PAYLOAD with what is wrong.

    `meta.junction_collection` that is another collection than the field's own asks for a many-to-many relation
    whole: junction table, both foreign keys, and the field.
    """
    problems: list[Problem] = []
    meta = parse_settings(payload.get("meta"), RELATION_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), RELATION_SCHEMA, "schema", problems)
    if problems:
        raise Refused(problems)
    collection, field = _name(payload, "collection"), _name(payload, "field")
    related = payload.get("related_collection")
    if related is not None and not isinstance(related, str):
        raise invalid_payload("related_collection: it must be a name or null", field="related_collection")
    junction = _junction(payload)
    if junction is not None and junction != collection:
        return _many_to_many(
            collection, field, related, junction, meta=meta, schema=schema, catalogue=catalogue
        )
    return _many_to_one(RelationDefinition(collection, field, related, meta, schema), catalogue)


def _name(payload: Mapping[str, object], key: str) -> str:
    found = payload.get(key)
    if not isinstance(found, str):
        raise invalid_payload(f"{key}: it must be a name", field=key)
    return found


def _junction(payload: Mapping[str, object]) -> str | None:
    meta = payload.get("meta")
    found = meta.get("junction_collection") if isinstance(meta, Mapping) else None
    if found is not None and not isinstance(found, str):
        raise invalid_payload("meta.junction_collection: it must be a name", field="meta.junction_collection")
    return found


def _many_to_one(found: RelationDefinition, catalogue: Catalogue) -> RelationDefinition:
    owner = own_collection(catalogue, found.collection, "collection")
    field = owner.fields.get(found.field)
    if field is None or field.column is None:
        raise invalid_payload(f'"{owner.name}" has no column "{found.field}"', field="field")
    if found.related is None:
        _check_any(found, owner, catalogue)
    else:
        target_of(catalogue, found.related)
    check_named(found.meta, owner)
    return found


def check_named(meta: Settings, owner: Collection) -> None:
    """Raise `Refused` when a setting names a column of the many side that is not there."""
    for key in ("junction_field", "sort_field", "one_collection_field"):
        named = meta.get(key)
        if named is not None and not (str(named) in owner.fields and owner.fields[str(named)].column):
            raise invalid_payload(f'meta.{key}: "{owner.name}" has no column "{named}"', field=f"meta.{key}")
    if meta.get("one_field") is not None and (fault := fault_of_name(meta["one_field"])):
        raise invalid_payload(f"meta.one_field: {fault}", field="meta.one_field")


def _check_any(found: RelationDefinition, owner: Collection, catalogue: Catalogue) -> None:
    if not found.meta.get("one_collection_field") or not found.meta.get("one_allowed_collections"):
        raise invalid_payload(
            "Without related_collection, meta takes one_collection_field and one_allowed_collections",
            field="related_collection",
        )
    check_allowed(found.meta, catalogue)


def check_allowed(meta: Settings, catalogue: Catalogue) -> None:
    """Raise `Refused` when a many-to-any relation allows a collection that is not there."""
    allowed = meta.get("one_allowed_collections")
    for name in allowed if isinstance(allowed, list) else ():
        target_of(catalogue, name, "meta.one_allowed_collections")


def own_collection(catalogue: Catalogue, name: str, place: str) -> Collection:
    """Return a table of the user's."""
    found = catalogue.collections.get(name)
    if found is None or found.kind is not Kind.TABLE:
        raise invalid_payload(f'{place}: there is no table "{name}"', field=place)
    return found


def target_of(catalogue: Catalogue, name: str, place: str = "related_collection") -> Collection:
    """Return a collection that keys can point to."""
    found = own_collection(catalogue, name, place)
    if found.primary_key is None:
        raise invalid_payload(f'{place}: "{name}" has no primary key', field=place)
    return found


def _many_to_many(
    collection: str,
    field: str,
    related: str | None,
    junction: str,
    *,
    meta: Settings,
    schema: Settings,
    catalogue: Catalogue,
) -> JunctionDefinition:
    if related is None:
        raise invalid_payload("A many-to-many relation needs related_collection", field="related_collection")
    owner, target = target_of(catalogue, collection, "collection"), target_of(catalogue, related)
    if field in owner.fields:
        raise invalid_payload(f'There is a field "{field}" already', field="field")
    faults = {"field": fault_of_name(field), "meta.junction_collection": fault_of_collection_name(junction)}
    near = f"{collection}_id"[:63]
    far = str(
        meta.get("junction_field") or f"{'related_' if related == collection else ''}{target.name}_id"[:63]
    )
    faults["meta.junction_field"] = fault_of_name(far) or ("it names both sides" if near == far else None)
    for place, fault in faults.items():
        if fault:
            raise invalid_payload(f"{place}: {fault}", field=place)
    return JunctionDefinition(collection, field, related, junction, near, far, meta, schema)
