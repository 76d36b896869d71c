"""Snapshots as clients send them, checked before anything is compared or changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cms import jsontext
from cms.errors import (
    MAX_PROBLEMS,
    Problem,
    abbreviated,
    combined,
    fixed_structure,
    invalid_payload,
)
from cms.mappings import without
from cms.schema.definitions import in_our_words
from cms.schema.keys import TO_ONE
from cms.schema.meta_settings import (
    COLLECTION_META,
    COLLECTION_SCHEMA,
    COLUMN_SCHEMA,
    FIELD_KEYS,
    FIELD_META,
    RELATION_KEYS,
    RELATION_META,
    RELATION_SCHEMA,
    MetaSetting,
    parse_settings,
    setting_problem,
    setting_value_problem,
    unknown_keys,
)
from cms.schema.payload import REPEATED
from cms.schema.reasons import NO_ARRAY, NO_NAME_OR_NULL, NO_OBJECT, not_one_of
from cms.schema.records import Record
from cms.schema.system import is_system
from cms.schema.types import TYPES, type_named
from cms.schema_sync.content import TABLES
from cms.schema_sync.directus_snapshots import converted, is_of_directus
from cms.schema_sync.schema_snapshot import VENDOR, VERSION, SchemaSnapshot
from cms.schema_sync.sections import (
    COLLECTIONS,
    FIELDS,
    KEYS,
    NAMELESS,
    NO_NAME,
    RELATIONS,
    STRUCTURE,
    RecordName,
    RecordsByName,
    is_name,
    record_name,
)

RENAMED_FROM = "renamed_from"


class Rename(NamedTuple):
    """A field that a document names otherwise than a structure may still do."""

    collection: str
    before: str
    after: str


class Document(NamedTuple):
    """A snapshot, the former names of its fields, and what it holds besides, with the reasons."""

    snapshot: SchemaSnapshot
    renames: tuple[Rename, ...]
    ignored: tuple[Record, ...]


class _Shape(NamedTuple):
    """The members of the records of a section."""

    members: tuple[str, ...]
    meta: Mapping[str, MetaSetting]
    schema: Mapping[str, MetaSetting]


_SHAPES = {
    COLLECTIONS: _Shape(("collection", "meta", "schema"), COLLECTION_META, COLLECTION_SCHEMA),
    FIELDS: _Shape((*FIELD_KEYS, RENAMED_FROM), FIELD_META, COLUMN_SCHEMA),
    RELATIONS: _Shape(RELATION_KEYS, RELATION_META, RELATION_SCHEMA),
}


def parse_document(payload: object) -> Document:
    """Read a snapshot; raises `Refused` INVALID_PAYLOAD with all its problems.

    A system collection in it is FORBIDDEN.
    """
    if not isinstance(payload, Mapping):
        raise invalid_payload("A snapshot is an object")
    require_writable(payload)
    ignored: list[Record] = []
    if is_of_directus(payload):
        payload = converted(payload, ignored)
    problems = unknown_keys(payload, ("version", "directus", "vendor", *_SHAPES, *TABLES))
    problems += _problems_of_origin(payload)
    included = [name for name in TABLES if name in payload]
    sections = {}
    for name in (*_SHAPES, *included):
        sections[name] = parse_section(payload.get(name), name, problems)
    if not problems:
        problems += inconsistencies(sections)
    if problems:
        raise combined(problems)
    return _document(sections, ignored)


def require_writable(payload: object) -> None:
    """Raise `Refused` INVALID_PAYLOAD for a value that no answer could hold."""
    try:
        jsontext.dumps(payload)
    except jsontext.TooDeep:
        raise invalid_payload("It is nested too deeply") from None


def _problems_of_origin(payload: Mapping[str, object]) -> list[Problem]:
    problems: list[Problem] = []
    version = payload.get("version")
    # In Python `1` and `true` are equal.
    if isinstance(version, bool) or version != VERSION:
        problems.append(setting_value_problem("version", f"it must be {VERSION}", version))
    vendor = payload.get("vendor", VENDOR)
    if vendor != VENDOR:
        problems.append(setting_value_problem("vendor", f"it must be {VENDOR}", vendor))
    return problems


def parse_section(
    payload: object, section: str, problems: list[Problem]
) -> dict[RecordName, Record]:
    """Return the records of a section by name; their problems are added to `problems`."""
    records: dict[RecordName, Record] = {}
    if not isinstance(payload, list):
        problems.append(setting_problem(section, NO_ARRAY))
        return records
    key_counts = Counter(map(_owner_of_key, payload))
    for index, record in enumerate(payload):
        if len(problems) >= MAX_PROBLEMS:
            break  # an answer has no room for more
        if not isinstance(record, dict):
            problems.append(setting_problem(f"{section}[{index}]", NO_OBJECT))
            continue
        path = path_of(record, section, index)
        is_part_of_key = key_counts[_owner_of_key(record)] > 1
        record = in_words_of_service(record, section, is_part_of_key=is_part_of_key)
        record_problems = problems_of_record(record, section, path)
        if not record_problems and record_name(section, record) in records:
            record_problems.append(setting_problem(path, REPEATED))
        if record_problems:
            problems += record_problems
        else:
            records[record_name(section, record)] = record
    return records


def _owner_of_key(record: object) -> str | None:
    """Return the collection of a field that is a key or a part of one, None for others."""
    if not isinstance(record, Mapping):
        return None
    schema = record.get("schema")
    if not isinstance(schema, Mapping) or schema.get("is_primary_key") is not True:
        return None
    return str(record.get("collection"))


def in_words_of_service(record: Record, section: str, *, is_part_of_key: bool = False) -> Record:
    """Return a record with the words that the records of the structure have.

    `is_part_of_key` tells that a column is one of several of the primary key.
    """
    field_type = type_named(record.get("type"))
    if section != FIELDS or field_type is None:
        return record
    record = {**record, "type": field_type.name}
    return dict(in_our_words(record, field_type, is_part_of_key=is_part_of_key))


def path_of(record: Record, section: str, index: int) -> str:
    """Return `fields[articles.title]`; a record without usable names is known by its index."""
    names = [record.get(key) for key in KEYS[section]]
    texts = [name for name in names if isinstance(name, str)]
    # Many permissions have the same names, so their index tells them apart.
    if len(texts) < len(KEYS[section]) or section in NAMELESS:
        return f"{section}[{index}]"
    return f"{section}[{abbreviated('.'.join(texts))}]"


def problems_of_record(record: Record, section: str, path: str) -> list[Problem]:
    """Return the problems of one record by itself; raises `Refused` for system records."""
    problems = []
    for key in KEYS[section]:
        if not is_name(section, key, record.get(key)):
            problem = setting_value_problem(f"{path}.{key}", NO_NAME, record.get(key))
            problems.append(problem)
    # The hooks of their collections check the rest of all other records.
    if section in STRUCTURE:
        problems += _problems_of_structure(record, section, path)
    return problems


def _problems_of_structure(record: Record, section: str, path: str) -> list[Problem]:
    shape = _SHAPES[section]
    problems = unknown_keys(record, shape.members, f"{path}.")
    collection = record.get("collection")
    if isinstance(collection, str) and is_system(collection):
        raise fixed_structure(collection)
    parse_settings(_settings_of(record), shape.meta, f"{path}.meta", problems)
    parse_settings(record.get("schema"), shape.schema, f"{path}.schema", problems)
    if section == FIELDS:
        problems += _problems_of_field(record, path)
    if section == RELATIONS:
        problems += _problems_of_text(record, "related_collection", path)
    return problems


def _settings_of(record: Record) -> object:
    """Return `meta` without the columns of a foreign key of several, which it only tells."""
    meta = record.get("meta")
    if isinstance(meta, Mapping) and meta.get("special") == [TO_ONE]:
        return without(meta, ("columns",))
    return meta


def _problems_of_field(record: Record, path: str) -> list[Problem]:
    problems = _problems_of_text(record, RENAMED_FROM, path)
    if "type" in record and type_named(record["type"]) is None:
        reason = not_one_of(TYPES)
        problems.append(setting_value_problem(f"{path}.type", reason, record["type"]))
    return problems


def _problems_of_text(record: Record, key: str, path: str) -> list[Problem]:
    value = record.get(key)
    if value is None or isinstance(value, str):
        return []
    return [setting_value_problem(f"{path}.{key}", NO_NAME_OR_NULL, value)]


def inconsistencies(sections: Mapping[str, RecordsByName]) -> list[Problem]:
    """Return the problems of records with each other."""
    return _missing_owners(sections) + _lists_filled_twice(sections[RELATIONS])


def _lists_filled_twice(relations: RecordsByName) -> list[Problem]:
    problems = []
    lists: set[tuple[object, object]] = set()
    for record in relations.values():
        meta = record.get("meta")
        one_field = meta.get("one_field") if isinstance(meta, Mapping) else None
        side = (record.get("related_collection"), one_field)
        if one_field is not None and side in lists:
            reason = f'"{side[0]}.{one_field}" lists others already'
            problems.append(setting_problem(RELATIONS, reason))
        lists.add(side)
    return problems


def _missing_owners(sections: Mapping[str, RecordsByName]) -> list[Problem]:
    """Return fields without their collection, and relations without their field."""
    problems = []
    for collection, field in sections[FIELDS]:
        if (collection,) not in sections[COLLECTIONS]:
            reason = f'"{collection}" of the field "{field}" is not among its collections'
            problems.append(setting_problem(FIELDS, reason))
    for collection, field in sections[RELATIONS]:
        if (collection, field) not in sections[FIELDS]:
            reason = f'"{collection}.{field}" of a relation is not among its fields'
            problems.append(setting_problem(RELATIONS, reason))
    return problems


def _document(sections: Mapping[str, RecordsByName], ignored: Iterable[Record]) -> Document:
    renames = []
    fields: dict[RecordName, Record] = {}
    for name, record in sections[FIELDS].items():
        former = record.get(RENAMED_FROM)
        if isinstance(former, str):
            renames.append(Rename(name[0], former, name[1]))
        fields[name] = without(record, (RENAMED_FROM,))
    snapshot = SchemaSnapshot({**sections, FIELDS: fields})
    return Document(snapshot, tuple(renames), tuple(ignored))
