"""Collections, fields and relations as records of the interface (specification, sections 2.2 to 2.4)."""

from __future__ import annotations

import re

from cms import jsontext
from cms.schema.model import Catalogue, Collection, Column, Field, Kind, Relation
from cms.schema.settings import COLLECTION_META
from cms.schema.types import TYPES, Family

Record = dict[str, object]

_QUOTED = re.compile(r"'((?:[^']|'')*)'(?:::.*)?", re.DOTALL)
_NULL = re.compile(r"NULL(?:::.*)?")


def collection_record(collection: Collection) -> Record:
    """Return `{collection, meta, schema}`; a folder has no schema, an unrecorded table no meta."""
    schema = {"name": collection.name, "comment": collection.comment}
    return {
        "collection": collection.name,
        "meta": _collection_meta(collection),
        "schema": None if collection.kind is Kind.FOLDER else schema,
    }


def _collection_meta(collection: Collection) -> Record | None:
    if collection.meta is None:
        return None
    given = dict(collection.meta)
    return {"collection": collection.name, **{key: given.get(key) for key in COLLECTION_META}} | (
        {"system": True} if collection.system else {}
    )


def field_record(field: Field) -> Record:
    """Return `{collection, field, type, meta, schema}`; an alias has no schema."""
    return {
        "collection": field.collection,
        "field": field.name,
        "type": field.type_name,
        "meta": dict(field.meta) if field.meta else None,
        "schema": _column_record(field, field.column) if field.column else None,
    }


def _column_record(field: Field, column: Column) -> Record:
    return {
        "name": column.name,
        "table": field.collection,
        "data_type": column.data_type,
        "default_value": default_of(field, column),
        "max_length": column.max_length,
        "numeric_precision": column.precision,
        "numeric_scale": column.scale,
        "is_nullable": column.nullable,
        "is_unique": column.unique,
        "is_indexed": column.indexed,
        "is_primary_key": column.primary_key,
        "is_generated": column.generated,
        "has_auto_increment": column.auto_increment,
        "foreign_key_table": column.foreign_table,
        "foreign_key_column": column.foreign_column,
        "comment": column.comment,
    }


def default_of(field: Field, column: Column) -> object:
    """Return a column's default as a value, or its expression when it is computed."""
    expression = column.default
    if expression is None or _NULL.fullmatch(expression) or column.auto_increment:
        return None
    quoted = _QUOTED.fullmatch(expression)
    literal = quoted[1].replace("''", "'") if quoted else expression.strip("()")
    return _typed(literal, field.type_name, expression if not quoted else literal)


def _typed(literal: str, type_name: str, otherwise: str) -> object:
    try:
        match TYPES[type_name].family:
            case Family.NUMBER:
                return jsontext.loads(literal)
            case Family.BOOLEAN:
                return TYPES["boolean"].parse(literal) == "true"
            case Family.JSON:
                return jsontext.loads(literal)
            case Family.CSV:
                return literal.split(",") if literal else []
            case _:
                return otherwise
    except ValueError:
        return otherwise


def relation_record(relation: Relation) -> Record:
    """Return `{collection, field, related_collection, schema, meta}`; without a record there is no meta."""
    return {
        "collection": relation.many_collection,
        "field": relation.many_field,
        "related_collection": relation.one_collection,
        "schema": _constraint_record(relation),
        "meta": _relation_meta(relation) if relation.id is not None else None,
    }


def _relation_meta(relation: Relation) -> Record:
    allowed = relation.one_allowed_collections
    return {
        "id": relation.id,
        "many_collection": relation.many_collection,
        "many_field": relation.many_field,
        "one_collection": relation.one_collection,
        "one_field": relation.one_field,
        "one_collection_field": relation.one_collection_field,
        "one_allowed_collections": None if allowed is None else list(allowed),
        "junction_collection": relation.many_collection if relation.junction_field else None,
        "junction_field": relation.junction_field,
        "sort_field": relation.sort_field,
        "one_deselect_action": relation.one_deselect_action,
    }


def _constraint_record(relation: Relation) -> Record | None:
    found = relation.constraint
    if found is None:
        return None
    return {
        "constraint_name": found.name,
        "table": found.table,
        "column": found.column,
        "foreign_key_table": found.foreign_table,
        "foreign_key_column": found.foreign_column,
        "on_update": found.on_update,
        "on_delete": found.on_delete,
    }


def related(catalogue: Catalogue, collection: str, field: str) -> Relation | None:
    """Return the relation that a field of either side belongs to."""
    return catalogue.by_many.get((collection, field)) or catalogue.by_one.get((collection, field))
