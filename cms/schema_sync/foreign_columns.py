"""Columns as other databases describe them, in the words of PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from cms import jsontext
from cms.schema.meta_settings import COLUMN_SIZES
from cms.schema.records import Record
from cms.schema.system import SYSTEM_PREFIX
from cms.schema.types import type_named
from cms.schema.types.field_type import FieldType
from cms.schema.types.structures import JSON
from cms.schema.types.texts import STRING, UUID
from cms.schema_sync.sections import RecordName

_UUID_LENGTH = 36
# CURRENT_TIMESTAMP, current_timestamp(6), now()
_MOMENT = re.compile(r"(current_(timestamp|date|time)|localtimestamp|now)(\(\d*\))?", re.IGNORECASE)
_NEW_UUIDS = ("uuid()", "uuid_generate_v4()", "gen_random_uuid()")


# Databases without the type keep UUIDs in columns of 36 characters.
def uuid_fields(
    fields: object, relations: object, our_name: Callable[[object], object]
) -> set[RecordName]:
    """Return the fields of texts that hold UUIDs: keys, and what points to such keys."""
    assert isinstance(fields, list)
    assert isinstance(relations, list)
    uuids: set[RecordName] = set()
    keys: dict[str, str] = {}
    texts = set()
    for record in fields:
        name = (record["collection"], record["field"])
        schema = record.get("schema")
        if not isinstance(schema, Mapping):
            continue
        if schema.get("is_primary_key"):
            keys[record["collection"]] = record["field"]
        field_type = type_named(record.get("type"))
        if field_type is STRING:
            texts.add(name)
        if field_type is UUID or (field_type is STRING and _holds_uuids(record, schema)):
            uuids.add(name)
    for relation in relations:
        name = (relation["collection"], relation["field"])
        related = str(our_name(relation.get("related_collection")))
        is_of_system = related.startswith(SYSTEM_PREFIX)
        if name in texts and (is_of_system or (related, keys.get(related)) in uuids):
            uuids.add(name)
    return uuids


def _holds_uuids(record: Record, schema: Mapping[str, object]) -> bool:
    if schema.get("max_length") != _UUID_LENGTH:
        return False
    meta = record.get("meta")
    special = meta.get("special") if isinstance(meta, Mapping) else None
    is_marked = isinstance(special, list) and "uuid" in special
    return is_marked or schema.get("data_type") in ("char", f"char({_UUID_LENGTH})")


def column_of(
    schema: Mapping[str, object], field_type: FieldType, ignore: Callable[[str], None]
) -> Record:
    """Return the settings of a column that say something; `ignore` gets why a default does not."""
    result = dict(schema)
    for key in COLUMN_SIZES:
        if key not in field_type.size_settings or schema.get(key) is None:
            result.pop(key, None)
    if "numeric_precision" not in result:
        result.pop("numeric_scale", None)
    # Relations and unique columns get an index, of which other databases say nothing.
    if schema.get("is_indexed") is False:
        del result["is_indexed"]
    if schema.get("is_primary_key"):
        result |= {"is_nullable": False, "is_unique": True, "is_indexed": True}
    default = result.pop("default_value", None)
    if field_type.is_whole_number and str(default).startswith("nextval("):
        result["has_auto_increment"] = True
    elif default is not None and not result.get("has_auto_increment"):
        try:
            result["default_value"] = _default(default, field_type)
        except ValueError as error:
            ignore(str(error))
    # A uuid key makes its values itself.
    elif "default_value" in schema and not (schema.get("is_primary_key") and field_type is UUID):
        result["default_value"] = None
    return result


def _default(value: object, field_type: FieldType) -> object:
    """Return a default as answers show it; raises ValueError for what the type does not take."""
    if isinstance(value, str):
        if field_type is UUID and value.lower() in _NEW_UUIDS:
            return UUID.key_default
        if field_type.now_sql and _MOMENT.fullmatch(value):
            return "now()"
        if field_type is JSON:
            value = jsontext.loads(value)
    if field_type.seal:
        raise ValueError("a hash has no default")
    return field_type.read_default(field_type.parse(value))
