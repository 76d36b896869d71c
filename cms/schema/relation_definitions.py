"""Relations as clients define them, checked against the catalogue (docs/structure.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    NAMING_SETTINGS,
    RELATION_KEYS,
    RELATION_META,
    RELATION_SCHEMA,
    MetaSettings,
    parse_settings,
    unknown_keys,
)
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.schema.names import (
    MAX_NAME_BYTES,
    duplicate_name_problem,
    invalid_collection_name_reason,
    invalid_field_name_reason,
    invalid_name_reason,
)
from cms.schema.reasons import NO_NAME_OR_NULL
from cms.schema.system import RELATIONS


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
    """A many-to-many relation to be made.

    `field` of `collection` lists items of `related` through the collection `junction`, whose
    columns `near` and `far` point to the items of `collection` and of `related`.
    """

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
    """Read the body of POST /relations; raises `Refused` INVALID_PAYLOAD with its problems.

    A `meta.junction_collection` other than the field's own collection asks for all of a
    many-to-many relation: the junction table, both foreign keys, and the field.
    """
    # Every part is read before anything is refused, so that one answer has all problems.
    problems = unknown_keys(payload, RELATION_KEYS)
    meta = parse_settings(payload.get("meta"), RELATION_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), RELATION_SCHEMA, "schema", problems)
    collection = _text(payload.get("collection"), "collection", "it must be a name", problems)
    field = _text(payload.get("field"), "field", "it must be a name", problems)
    related = payload.get("related_collection")
    if related is not None:
        related = _text(related, "related_collection", NO_NAME_OR_NULL, problems)
    junction = _junction(payload, problems)
    if problems or collection is None or field is None:
        raise Refused(problems)
    definition = RelationDefinition(collection, field, related, meta, schema)
    # A relation that belongs to a junction has its own collection as `junction_collection`: such a
    # record may be sent again as it was read.
    if junction is not None and junction != collection:
        return _many_to_many(definition, junction, catalogue)
    return _many_to_one(definition, catalogue)


def _text(value: object, path: str, reason: str, problems: list[Problem]) -> str | None:
    """Return a text at a path of the body; anything else is a problem."""
    if isinstance(value, str):
        return value
    problems += invalid_payload(f"{path}: {reason}", field=path, value=abbreviated(value)).problems
    return None


def _junction(payload: Mapping[str, object], problems: list[Problem]) -> str | None:
    meta = payload.get("meta")
    junction = meta.get("junction_collection") if isinstance(meta, Mapping) else None
    if junction is None or isinstance(junction, str):
        return junction
    path = "meta.junction_collection"
    problems += invalid_payload(f"{path}: it must be a name", field=path).problems
    return None


def _many_to_one(definition: RelationDefinition, catalogue: Catalogue) -> RelationDefinition:
    owner = require_own_table(catalogue, definition.collection)
    field = owner.fields.get(definition.field)
    related = definition.related
    problems: list[Problem] = []
    if field is None or not field.has_value or (related is None and field.column is None):
        reason = _no_column(owner, definition.field)
        problems += invalid_payload(reason, field="field", value=definition.field).problems
    else:
        collect_problems(problems, lambda: check_actions(definition.schema, field))
    if related is None:
        collect_problems(problems, lambda: _check_many_to_any(definition, catalogue))
    elif field is not None and field.parts:
        # There is none of a field whose relation was deleted; its columns still point somewhere.
        present = catalogue.by_many.get((owner.name, field.name))
        if present and present.one_collection != related:
            reason = f'The columns point to "{present.one_collection}"'
            problems += invalid_payload(reason, field="related_collection").problems
    else:
        collect_problems(problems, lambda: require_target(catalogue, related))
    collect_problems(problems, lambda: check_field_names(definition.meta, owner))
    if problems:
        raise Refused(problems)
    return definition


def check_actions(schema: MetaSettings, field: Field) -> None:
    """Raise `Refused` when a foreign key would set a column to null that takes none.

    PostgreSQL would accept the key, and then refuse every deletion of a target.
    """
    for key in ("on_delete", "on_update"):
        is_nullable = [part.column.is_nullable for part in field.key_fields if part.column]
        if schema.get(key) == "SET NULL" and not all(is_nullable):
            reason = f'schema.{key}: "{field.name}" takes no null'
            raise invalid_payload(reason, field=f"schema.{key}")


def check_field_names(meta: MetaSettings, owner: Collection) -> None:
    """Raise `Refused` for settings that can name no column of the many side, not even a new one."""
    problems: list[Problem] = []
    for key in NAMING_SETTINGS[RELATIONS]:
        name = meta.get(key)
        problems += _problems(f"meta.{key}", _invalid_column_reason(key, name, owner), name)
    one_field = meta.get("one_field")
    if one_field is not None:
        reason = invalid_field_name_reason(one_field, is_alias=True)
        problems += _problems("meta.one_field", reason, one_field)
    if problems:
        raise Refused(problems)


def _problems(path: str, reason: str | None, value: object) -> Sequence[Problem]:
    """Return the problem of a value at a path of the body; none without a reason."""
    if reason is None:
        return ()
    return invalid_payload(f"{path}: {reason}", field=path, value=abbreviated(value)).problems


def _invalid_column_reason(key: str, name: object, owner: Collection | None) -> str | None:
    """Return why a setting cannot name a column of `owner`, or None.

    The column of a junction or sort field may be made later.
    """
    if name is None:
        return None
    if owner is None:
        return invalid_name_reason(name)
    field = owner.fields.get(str(name))
    if field and field.column:
        return None
    # A field without a column cannot become one; and the column with the names of targets must
    # exist now, because reads need it.
    if field or key == "one_collection_field":
        return _no_column(owner, name)
    return invalid_name_reason(name)


def _no_column(owner: Collection, name: object) -> str:
    return f'"{owner.name}" has no column "{name}"'


def _check_many_to_any(definition: RelationDefinition, catalogue: Catalogue) -> None:
    check_many_to_any(definition.meta)
    check_allowed_collections(definition.meta, catalogue)


def check_many_to_any(meta: Mapping[str, object]) -> None:
    """Raise `Refused` when a many-to-any relation lacks a setting, or has one without effect."""
    if not meta.get("one_collection_field") or not meta.get("one_allowed_collections"):
        raise invalid_payload(
            "Without related_collection, meta takes one_collection_field and"
            " one_allowed_collections",
            field="related_collection",
        )
    if meta.get("one_field"):
        reason = "Items of several collections have no list of a many-to-any relation"
        raise invalid_payload(reason, field="meta.one_field")


def check_allowed_collections(meta: MetaSettings, catalogue: Catalogue) -> None:
    """Raise `Refused` when a many-to-any relation allows a collection that does not exist."""
    allowed = meta.get("one_allowed_collections")
    if not isinstance(allowed, list):
        return
    for name in allowed:
        require_keyed_table(catalogue, name, "meta.one_allowed_collections")


def require_own_table(catalogue: Catalogue, name: str) -> Collection:
    """Return the table that gets a relation; raises `Refused` FORBIDDEN for a system table."""
    table = _table(catalogue, name, "collection")
    if table.is_system:
        raise fixed_structure(table.name)
    return table


def require_target(catalogue: Catalogue, name: str, path: str = "related_collection") -> Collection:
    """Return a collection that a column can point to; `path` is where the body names it."""
    table = require_keyed_table(catalogue, name, path)
    if not table.key_name:
        reason = f'{path}: "{table.name}" has a primary key of several columns'
        raise invalid_payload(reason, field=path)
    return table


def require_keyed_table(catalogue: Catalogue, name: str, path: str) -> Collection:
    """Return a collection whose items have keys; `path` is where the body names it."""
    table = _table(catalogue, name, path)
    if table.primary_key is None:
        raise invalid_payload(f'{path}: "{table.name}" has no primary key', field=path)
    return table


def _table(catalogue: Catalogue, name: str, path: str) -> Collection:
    collection = catalogue.collections.get(name)
    if collection is None or collection.kind is not Kind.TABLE:
        raise invalid_payload(f'{path}: there is no table "{name}"', field=path, value=name)
    return collection


def _many_to_many(
    definition: RelationDefinition, junction: str, catalogue: Catalogue
) -> JunctionDefinition:
    """Check a many-to-many relation; its junction may be a table that exists, or a new one."""
    related = definition.related
    if related is None:
        reason = "A many-to-many relation needs related_collection"
        raise invalid_payload(reason, field="related_collection")
    owner = require_own_table(catalogue, definition.collection)
    target = require_target(catalogue, related)
    name = definition.field
    require_target(catalogue, owner.name, "collection")
    if name in owner.fields:
        raise Refused(duplicate_name_problem(name))
    meta = definition.meta
    # `articles_id`. PostgreSQL would cut the name at the same length, but the record of the
    # relation would have the long one.
    near = f"{owner.name}_id"[:MAX_NAME_BYTES]
    far = _far_column(owner.name, target.name, meta)
    far_reason = invalid_name_reason(far)
    if far_reason is None and near == far:
        far_reason = "it names both sides"
    sort = meta.get("sort_field")
    sort_reason = _invalid_column_reason("sort_field", sort, catalogue.collections.get(junction))
    problems = [
        *_problems("field", invalid_field_name_reason(name, is_alias=True), name),
        *_problems("meta.junction_collection", _junction_reason(junction, catalogue), junction),
        *_problems("meta.junction_field", far_reason, far),
        *_problems("meta.sort_field", sort_reason, sort),
    ]
    if problems:
        raise Refused(problems)
    return JunctionDefinition(
        owner.name, name, related, junction, near, far, meta, definition.schema
    )


def _far_column(owner: str, target: str, meta: MetaSettings) -> str:
    """Return the column of a junction that points to the listed items, `tags_id`.

    `meta.junction_field` may give it another name.
    """
    name = meta.get("junction_field")
    if name:
        return str(name)
    column = f"{target}_id"
    # Between items of one collection both columns would have the same name.
    if owner == target:
        column = f"related_{column}"
    return column[:MAX_NAME_BYTES]


def _junction_reason(junction: str, catalogue: Catalogue) -> str | None:
    """Return why a collection cannot be a junction, or None."""
    collection = catalogue.collections.get(junction)
    if collection is None:
        return invalid_collection_name_reason(junction)
    if collection.kind is Kind.TABLE and not collection.is_system:
        return None
    return "it is no table of yours"
