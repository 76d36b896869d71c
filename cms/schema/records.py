"""Collections, fields and relations as the records that clients get (docs/structure.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cms.schema.defaults import default_of
from cms.schema.meta_settings import COLLECTION_META, FIELD_META
from cms.schema.model import Catalogue, Collection, Column, Field, Kind, Relation
from cms.schema.system import FILES, FOLDERS, USERS, is_system, system_table
from cms.schema.types import ALIAS
from cms.schema.types.texts import STRING, TEXT

Record = dict[str, object]

DEFAULT_META: Record = {
    "readonly": False,
    "hidden": False,
    "required": False,
    "width": "full",
    "searchable": True,
    "archive_app_filter": True,
    "singleton": False,
    "accountability": "all",
    "collapse": "open",
    "versioning": False,
}
"""The values of settings that nobody has set.

System collections have no rows in the tables of settings, whose columns would have these defaults.
"""


_TO_ONE_MARKERS = frozenset({"m2o", "m2a", "file"})
"""The special markers of columns that lead to items of another collection."""


def collection_record(collection: Collection) -> Record:
    """Return `{collection, meta, schema}`; a folder has no schema, an unrecorded table no meta."""
    schema: Record | None = {"name": collection.name, "comment": collection.comment}
    # Clients tell folders from tables by this null.
    if collection.kind is Kind.FOLDER:
        schema = None
    return {"collection": collection.name, "meta": _collection_meta(collection), "schema": schema}


def _collection_meta(collection: Collection) -> Record | None:
    if collection.meta is None:
        return None
    record: Record = {"collection": collection.name}
    # Every key of the table of settings, in its order, whether the record has it or not.
    for key in COLLECTION_META:
        record[key] = collection.meta.get(key, DEFAULT_META.get(key))
    if collection.is_system:
        record["system"] = True
    return record


def field_record(field: Field) -> Record:
    """Return `{collection, field, type, meta, schema}`.

    An alias has no schema, a field without a record no meta.
    """
    return {
        "collection": field.collection,
        "field": field.name,
        "type": _type_name(field),
        "meta": _field_meta(field),
        "schema": column_record(field, field.column) if field.column else None,
    }


def _type_name(field: Field) -> str:
    # The interface calls all texts of system collections strings, which one line holds.
    if field.type is TEXT and is_system(field.collection):
        return STRING.name
    return field.type.name


def requested_field_record(field: Field) -> Record:
    """Return the record of a field with the indexes that were asked for, if they are not built yet.

    Snapshots of the structure and its history hold what was asked for; answers, what is there.
    """
    column = field.column
    if column is None:
        return field_record(field)
    if column.is_unique_pending:
        # What makes it unique is an index.
        column = replace(column, is_unique=True, is_indexed=True)
    if column.is_index_pending:
        column = replace(column, is_indexed=True)
    return field_record(replace(field, column=column))


def _field_meta(field: Field) -> Record | None:
    is_of_system = is_system(field.collection)
    # An app must be offered the choices of an enum, whether the field has a record or not.
    if field.meta is None and not is_of_system and not field.choices and not field.parts:
        return None
    form = _form_of(field) if is_of_system else {}
    meta = {**form, **(field.meta or {}), **_choice_options(field)}
    record = {"id": meta.get("id"), "collection": field.collection, "field": field.name}
    for key in FIELD_META:
        record[key] = meta.get(key, DEFAULT_META.get(key))
    if meta.get("searchable") is None:
        record["searchable"] = None if _may_be_relation(field) else True
    if field.parts:
        columns = [part.name for part in field.parts]
        record |= {"special": list(field.special), "columns": columns}
    if is_of_system:
        record["system"] = True
    return record


def _may_be_relation(field: Field) -> bool:
    """Tell whether `searchable: true` may make searches look into the items that a field leads to.

    Otherwise a field is as searchable without the setting.
    """
    column = field.column
    if column is None or column.foreign_table is not None:
        return True
    return not _TO_ONE_MARKERS.isdisjoint(field.special)


def _choice_options(field: Field) -> Record:
    """Return the interface and options of an enum field, unless its record has choices."""
    meta = field.meta or {}
    options = meta.get("options") or {}
    # Recorded choices stay: they may have texts for people, or be some of the values only.
    if not field.choices or not isinstance(options, Mapping) or options.get("choices"):
        return {}
    choices = [{"text": value, "value": value} for value in field.choices]
    return {
        "interface": meta.get("interface") or "select-dropdown",
        "options": {**options, "choices": choices},
    }


def column_record(field: Field, column: Column) -> Record:
    """Return the `schema` of a field as clients get it."""
    return {
        "name": column.name,
        "table": field.collection,
        "data_type": column.data_type,
        "default_value": default_of(field, column),
        "max_length": column.max_length,
        "numeric_precision": column.precision,
        "numeric_scale": column.scale,
        "is_nullable": column.is_nullable,
        "is_unique": column.is_unique,
        "is_indexed": column.is_indexed,
        "is_primary_key": column.is_primary_key,
        "is_generated": column.is_generated,
        "has_auto_increment": column.has_auto_increment,
        "foreign_key_table": column.foreign_table,
        "foreign_key_column": column.foreign_column,
        "comment": column.comment,
    }


def relation_record(relation: Relation) -> Record:
    """Return `{collection, field, related_collection, schema, meta}`.

    A relation of the database without a record has no meta.
    """
    return {
        "collection": relation.many_collection,
        "field": relation.many_field,
        "related_collection": relation.one_collection,
        "schema": _constraint_record(relation),
        "meta": _relation_meta(relation),
    }


def _relation_meta(relation: Relation) -> Record | None:
    is_of_system = is_system(relation.many_collection)
    if relation.id is None and not is_of_system:
        return None
    allowed = relation.one_allowed_collections
    # The junction of a many-to-many relation is the table that both of its relations begin in.
    junction = relation.many_collection if relation.junction_field else None
    record: Record = {
        "id": relation.id,
        "many_collection": relation.many_collection,
        "many_field": relation.many_field,
        "one_collection": relation.one_collection,
        "one_field": relation.one_field,
        "one_collection_field": relation.one_collection_field,
        "one_allowed_collections": None if allowed is None else list(allowed),
        "junction_collection": junction,
        "junction_field": relation.junction_field,
        "sort_field": relation.sort_field,
        "one_deselect_action": relation.one_deselect_action,
    }
    if is_of_system:
        record["system"] = True
    return record


def _constraint_record(relation: Relation) -> Record | None:
    constraint = relation.constraint
    if constraint is None:
        return None
    return {
        "constraint_name": constraint.name,
        "table": constraint.table,
        "column": _only(constraint.columns),
        "foreign_key_table": constraint.foreign_table,
        "foreign_key_column": _only(constraint.foreign_columns),
        "on_update": constraint.on_update,
        "on_delete": constraint.on_delete,
    }


def _only(columns: tuple[str, ...]) -> str | None:
    """Return the one column of a key; the field of a key of several lists them."""
    return columns[0] if len(columns) == 1 else None


def related(catalogue: Catalogue, collection: str, field: str) -> Relation | None:
    """Return the relation that a field belongs to, on either side."""
    return catalogue.by_many.get((collection, field)) or catalogue.by_one.get((collection, field))


# How forms show the fields of system collections, whose settings no table holds

_INTERFACES_BY_NAME = {
    "icon": "select-icon",
    "color": "select-color",
    "project_color": "select-color",
    "description": "input-multiline",
    "note": "input-multiline",
    "comment": "input-multiline",
    "message": "input-multiline",
    "public_note": "input-multiline",
    "language": "system-language",
    "default_language": "system-language",
    "custom_css": "input-code",
    "password": "input-hash",
    "token": "system-token",
    "tags": "tags",
}
_INTERFACES_BY_TARGET = {USERS: "user", FILES: "file", FOLDERS: "system-folder"}
_INTERFACES_BY_TYPE = {
    "alias": "list-o2m",
    "boolean": "boolean",
    "timestamp": "datetime",
    "json": "input-code",
}
_CODE_LANGUAGES = {"custom_css": "css"}
_HIDDEN_FIELDS = frozenset({"last_page"})


def _form_of(field: Field) -> dict[str, object]:
    """Return `interface`, `options` and `hidden` of a field of a system collection."""
    is_key = field.column is not None and field.column.is_primary_key
    interface = _interface_of(field)
    options: dict[str, object] | None = None
    if interface == "select-dropdown":
        words = system_table(field.collection).choices[field.name].words
        options = {"choices": [{"text": word.capitalize(), "value": word} for word in words]}
    elif interface == "input-code":
        options = {"language": _CODE_LANGUAGES.get(field.name, "json")}
    return {
        "interface": interface,
        "options": options,
        "hidden": is_key or field.name in _HIDDEN_FIELDS,
    }


def _interface_of(field: Field) -> str:
    table = system_table(field.collection)
    if field.name in table.choices:
        return "select-dropdown"
    target = table.references.get(field.name)
    if field.column is not None and field.column.foreign_table is not None:
        target = field.column.foreign_table
    if target is not None:
        return _INTERFACES_BY_TARGET.get(target, "select-dropdown-m2o")
    if field.type is not ALIAS and field.name in _INTERFACES_BY_NAME:
        return _INTERFACES_BY_NAME[field.name]
    return _INTERFACES_BY_TYPE.get(field.type.name, "input")
