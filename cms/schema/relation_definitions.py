"""Relations as clients define them, checked against the catalogue (specification, section 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cms.errors import (
    Problem,
    Refused,
    abbreviated,
    collect_problems,
    fixed_structure,
    invalid_payload,
)
from cms.schema.meta_settings import (
    RELATION_KEYS,
    RELATION_META,
    RELATION_SCHEMA,
    MetaSettings,
    parse_settings,
    unknown_keys,
)
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.schema.names import fault_of_collection_name, fault_of_name


@dataclass(frozen=True, slots=True)
class RelationDefinition:
    """A many-to-one relation to be made; without `related` it is many-to-any."""

    collection: str
    field: str
    related: str | None
    meta: MetaSettings
    schema: MetaSettings


@dataclass(frozen=True, slots=True)
class JunctionDefinition:
    """A many-to-many relation to be made: `field` of `collection` lists `related` through the junction."""

    collection: str
    field: str
    related: str
    junction: str
    near: str
    far: str
    meta: MetaSettings
    schema: MetaSettings


def parse_relation(
    payload: Mapping[str, object], catalogue: Catalogue
) -> RelationDefinition | JunctionDefinition:
    """Read the body of POST /relations; raises `Refused` INVALID_PAYLOAD with what is wrong.

    `meta.junction_collection` that is another collection than the field's own asks for a many-to-many relation
    whole: junction table, both foreign keys, and the field.
    """
    problems = unknown_keys(payload, RELATION_KEYS)
    meta = parse_settings(payload.get("meta"), RELATION_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), RELATION_SCHEMA, "schema", problems)
    collection = collect_problems(problems, lambda: _name(payload, "collection"))
    field = collect_problems(problems, lambda: _name(payload, "field"))
    related = collect_problems(problems, lambda: _related(payload))
    junction = collect_problems(problems, lambda: _junction(payload))
    if problems or collection is None or field is None:
        raise Refused(problems)
    wanted = RelationDefinition(collection, field, related, meta, schema)
    if junction is not None and junction != collection:
        return _many_to_many(wanted, junction, catalogue)
    return _many_to_one(wanted, catalogue)


def _name(payload: Mapping[str, object], key: str) -> str:
    found = payload.get(key)
    if not isinstance(found, str):
        raise invalid_payload(f"{key}: it must be a name", field=key, value=abbreviated(found))
    return found


def _related(payload: Mapping[str, object]) -> str | None:
    related = payload.get("related_collection")
    if related is not None and not isinstance(related, str):
        reason = "related_collection: it must be a name or null"
        raise invalid_payload(reason, field="related_collection", value=abbreviated(related))
    return related


def _junction(payload: Mapping[str, object]) -> str | None:
    meta = payload.get("meta")
    found = meta.get("junction_collection") if isinstance(meta, Mapping) else None
    if found is not None and not isinstance(found, str):
        raise invalid_payload(
            "meta.junction_collection: it must be a name", field="meta.junction_collection"
        )
    return found


def _many_to_one(found: RelationDefinition, catalogue: Catalogue) -> RelationDefinition:
    owner = require_own_table(catalogue, found.collection)
    field = owner.fields.get(found.field)
    related = found.related
    problems: list[Problem] = []
    if field is None or field.column is None:
        reason = f'"{owner.name}" has no column "{found.field}"'
        problems += invalid_payload(reason, field="field", value=found.field).problems
    else:
        collect_problems(problems, lambda: check_actions(found.schema, field))
    if related is None:
        collect_problems(problems, lambda: _check_many_to_any(found, catalogue))
    else:
        collect_problems(problems, lambda: require_target(catalogue, related))
    collect_problems(problems, lambda: check_field_names(found.meta, owner))
    if problems:
        raise Refused(problems)
    return found


def check_actions(schema: MetaSettings, field: Field) -> None:
    """Raise `Refused` when a foreign key would empty a column that is never empty, and so refuse at the wrong time."""
    for key in ("on_delete", "on_update"):
        if schema.get(key) == "SET NULL" and field.column and not field.column.is_nullable:
            raise invalid_payload(
                f'schema.{key}: "{field.name}" takes no null', field=f"schema.{key}"
            )


def check_field_names(meta: MetaSettings, owner: Collection) -> None:
    """Raise `Refused` when a setting names what is no column of the many side, and cannot become one."""
    faults = {
        key: _fault_of_field_name(key, meta.get(key), owner)
        for key in ("junction_field", "sort_field", "one_collection_field")
    }
    if meta.get("one_field") is not None:
        faults["one_field"] = fault_of_name(meta["one_field"])
    _refuse({f"meta.{key}": (fault, meta.get(key)) for key, fault in faults.items()})


def _refuse(faults: Mapping[str, tuple[str | None, object]]) -> None:
    """Raise `Refused` with all faults that there are, each with what was sent there."""
    problems = [
        problem
        for place, (fault, sent) in faults.items()
        if fault
        for problem in invalid_payload(
            f"{place}: {fault}", field=place, value=abbreviated(sent)
        ).problems
    ]
    if problems:
        raise Refused(problems)


def _fault_of_field_name(key: str, named: object, owner: Collection | None) -> str | None:
    """Return why a setting cannot name a field; a junction or sort field may be made later (decisions, section 6)."""
    if named is None:
        return None
    field = owner.fields.get(str(named)) if owner else None
    if field and field.column:
        return None
    if owner and (field or key == "one_collection_field"):
        return f'"{owner.name}" has no column "{named}"'
    return fault_of_name(named)


def _check_many_to_any(found: RelationDefinition, catalogue: Catalogue) -> None:
    check_many_to_any(found.meta)
    check_allowed_collections(found.meta, catalogue)


def check_many_to_any(meta: Mapping[str, object]) -> None:
    """Raise `Refused` when a many-to-any relation lacks what makes it one."""
    if not meta.get("one_collection_field") or not meta.get("one_allowed_collections"):
        raise invalid_payload(
            "Without related_collection, meta takes one_collection_field and one_allowed_collections",
            field="related_collection",
        )


def check_allowed_collections(meta: MetaSettings, catalogue: Catalogue) -> None:
    """Raise `Refused` when a many-to-any relation allows a collection that is not there."""
    allowed = meta.get("one_allowed_collections")
    for name in allowed if isinstance(allowed, list) else ():
        require_target(catalogue, name, "meta.one_allowed_collections")


def require_own_table(catalogue: Catalogue, name: str) -> Collection:
    """Return the table that gets a relation; raises `Refused` FORBIDDEN for one of the system's."""
    found = _table(catalogue, name, "collection")
    if found.system:
        raise fixed_structure(found.name)
    return found


def require_target(
    catalogue: Catalogue, name: str, place: str = "related_collection"
) -> Collection:
    """Return a collection that keys can point to."""
    found = _table(catalogue, name, place)
    if found.primary_key is None:
        raise invalid_payload(f'{place}: "{name}" has no primary key', field=place)
    return found


def _table(catalogue: Catalogue, name: str, place: str) -> Collection:
    found = catalogue.collections.get(name)
    if found is None or found.kind is not Kind.TABLE:
        raise invalid_payload(f'{place}: there is no table "{name}"', field=place, value=name)
    return found


def _many_to_many(
    wanted: RelationDefinition, junction: str, catalogue: Catalogue
) -> JunctionDefinition:
    """Check a many-to-many relation; its junction table is there already or gets a name as any new table."""
    related, meta = wanted.related, wanted.meta
    if related is None:
        raise invalid_payload(
            "A many-to-many relation needs related_collection", field="related_collection"
        )
    owner, target = (
        require_own_table(catalogue, wanted.collection),
        require_target(catalogue, related),
    )
    if owner.primary_key is None:
        raise invalid_payload(f'collection: "{owner.name}" has no primary key', field="collection")
    if wanted.field in owner.fields:
        raise invalid_payload(
            f'There is a field "{wanted.field}" already', field="field", value=wanted.field
        )
    near, far = _columns_of_junction(owner.name, target.name, meta)
    sort = meta.get("sort_field")
    rows = catalogue.collections.get(junction)
    _refuse(
        {
            "field": (fault_of_name(wanted.field), wanted.field),
            "meta.junction_collection": (_fault_of_junction(junction, catalogue), junction),
            "meta.junction_field": (
                fault_of_name(far) or ("it names both sides" if near == far else None),
                far,
            ),
            "meta.sort_field": (_fault_of_field_name("sort_field", sort, rows), sort),
        }
    )
    return JunctionDefinition(
        owner.name, wanted.field, related, junction, near, far, meta, wanted.schema
    )


def _columns_of_junction(owner: str, target: str, meta: MetaSettings) -> tuple[str, str]:
    """Return the columns that point to either side: `articles_id` and `tags_id`, unless the second is named."""
    usual = f"{'related_' if owner == target else ''}{target}_id"[:63]
    return f"{owner}_id"[:63], str(meta.get("junction_field") or usual)


def _fault_of_junction(junction: str, catalogue: Catalogue) -> str | None:
    present = catalogue.collections.get(junction)
    if present is None:
        return fault_of_collection_name(junction)
    return None if present.kind is Kind.TABLE and not present.system else "it is no table of yours"
