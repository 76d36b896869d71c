"""Snapshots that Directus has written, in the words of this service (docs/directus.md).

What has no counterpart is left out, and listed in the answer of the diff. What cannot be read at
all stays, for the parser of documents to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from cms.errors import Refused, abbreviated
from cms.mappings import without
from cms.query.rules.field_conditions import RULE_SETTINGS, require_valid_rules
from cms.schema.definitions import (
    FieldDefinition,
    in_our_words,
    special_inconsistencies,
    with_implied_specials,
)
from cms.schema.meta_settings import (
    COLLECTION_META,
    COLLECTION_SCHEMA,
    COLUMN_SCHEMA,
    FIELD_META,
    NAMING_SETTINGS,
    READ_ONLY_KEYS,
    RELATION_META,
    RELATION_SCHEMA,
    MetaSetting,
    MetaSettings,
)
from cms.schema.records import Record
from cms.schema.system import COLLECTIONS as COLLECTION_RECORDS
from cms.schema.system import SYSTEM_COLLECTIONS, SYSTEM_PREFIX
from cms.schema.types import ALIAS, type_named
from cms.schema.types.field_type import FieldType
from cms.schema.types.structures import JSON
from cms.schema.types.texts import UUID
from cms.schema_sync.foreign_columns import column_of, uuid_fields
from cms.schema_sync.sections import (
    COLLECTIONS,
    FIELDS,
    KEYS,
    RELATIONS,
    STRUCTURE,
    RecordName,
    RecordsByName,
    is_name,
    records_by_name,
)
from cms.store.project_info import DIRECTUS_VERSION

_PREFIX = "directus_"
_MEMBERS = ("version", "directus", "vendor", *STRUCTURE)
_NO_COUNTERPART = "it has no counterpart here"
_LISTS = frozenset({"o2m", "m2m", "m2a", "files", "translations"})
_FIXED = "system collections have the fields of this service"

Settings = Mapping[str, MetaSetting]


def is_of_directus(payload: Mapping[str, object]) -> bool:
    """Tell whether Directus wrote a snapshot; those of this service name no release of it."""
    return payload.get("directus", DIRECTUS_VERSION) != DIRECTUS_VERSION


def converted(payload: Mapping[str, object], ignored: list[Record]) -> Record:
    """Return a snapshot of Directus as a document; `ignored` gets what has no counterpart."""
    document: Record = {"version": payload.get("version")}
    for section in STRUCTURE:
        records = payload.get(section)
        document[section] = records
        if not isinstance(records, list) or not all(map(partial(_is_named, section), records)):
            return {**without(payload, ("directus", "vendor")), **document}
    conversion = _SnapshotConversion(payload, ignored)
    for member in payload:
        if member not in _MEMBERS:
            conversion.ignore(member, _NO_COUNTERPART)
    return {**document, **conversion.sections()}


def _is_named(section: str, record: object) -> bool:
    return isinstance(record, dict) and all(
        is_name(section, key, record.get(key)) for key in KEYS[section]
    )


class _SnapshotConversion:
    """The records of a snapshot, turned section by section."""

    def __init__(self, payload: Mapping[str, object], ignored: list[Record]) -> None:
        self._payload = payload
        self._ignored = ignored
        self._collections: RecordsByName = {}
        self._fields: RecordsByName = {}

    def ignore(self, path: str, reason: str) -> None:
        self._ignored.append({"field": path, "reason": reason})

    def sections(self) -> Record:
        # Collections name fields, and fields have the types of keys that relations lead to.
        uuids = uuid_fields(self._payload[FIELDS], self._payload[RELATIONS], _our_name)
        self._collections = records_by_name(
            COLLECTIONS, self._records(COLLECTIONS, self._collection)
        )
        self._fields = records_by_name(
            FIELDS, self._records(FIELDS, partial(self._field, uuids=uuids))
        )
        relations = self._records(RELATIONS, self._relation)
        self._drop_dead_lists(relations)
        for record in self._collections.values():
            self._drop_missing_names(record)
        return {
            COLLECTIONS: list(self._collections.values()),
            FIELDS: list(self._fields.values()),
            RELATIONS: relations,
        }

    def _records(
        self, section: str, convert: Callable[[Record, str], Record | None]
    ) -> list[Record]:
        results: list[Record] = []
        for record in self._payload[section]:  # type: ignore[attr-defined]
            path = f"{section}[{'.'.join(record[key] for key in KEYS[section])}]"
            if str(record["collection"]).startswith(_PREFIX):
                self.ignore(path, _FIXED)
                continue
            result = convert(record, path)
            if result is not None:
                results.append(result)
        return results

    # Records

    def _collection(self, record: Record, path: str) -> Record:
        members = ("collection", "meta", "schema")
        return self._known(record, members, (COLLECTION_META, COLLECTION_SCHEMA), path)

    def _field(self, record: Record, path: str, *, uuids: set[RecordName]) -> Record | None:
        name = (str(record["collection"]), str(record["field"]))
        if name[:1] not in self._collections:
            self.ignore(path, "its collection is not in the snapshot")
            return None
        field_type = type_named(record.get("type"))
        if field_type is None or not field_type.is_known:
            self.ignore(path, f"there is no type {abbreviated(record.get('type'))}")
            return None
        if name in uuids:
            field_type = UUID
        record = dict(in_our_words({**record, "type": field_type.name}, field_type))
        members = ("collection", "field", "type", "meta", "schema")
        result = self._known(record, members, (FIELD_META, COLUMN_SCHEMA), path)
        meta = result.get("meta")
        if isinstance(meta, dict):
            self._convert_field_meta(meta, field_type, f"{path}.meta")
        schema = result.get("schema")
        if field_type is ALIAS:
            result["schema"] = None
        elif isinstance(schema, Mapping):
            ignore = partial(self.ignore, f"{path}.schema.default_value")
            result["schema"] = column_of(schema, field_type, ignore)
        return result

    def _convert_field_meta(self, meta: Record, field_type: FieldType, path: str) -> None:
        if "special" in meta:
            special = self._markers(meta["special"], field_type, f"{path}.special")
            definition = FieldDefinition("", field_type, MetaSettings(special=special))
            meta["special"] = with_implied_specials(definition)["special"]
        for key in RULE_SETTINGS:
            if meta.get(key) is None:
                continue
            try:
                require_valid_rules({key: JSON.parse(meta[key])})
            except Refused as refused:
                del meta[key]
                self.ignore(f"{path}.{key}", str(refused.problems[0].extensions["reason"]))

    def _markers(self, special: object, field_type: FieldType, path: str) -> list[str]:
        markers: list[str] = []
        for marker in dict.fromkeys(special if isinstance(special, list) else ()):
            unfit = next(special_inconsistencies(field_type, [marker]), None)
            if unfit:
                self.ignore(path, unfit.reason)
            else:
                markers.append(marker)
        return markers

    def _relation(self, record: Record, path: str) -> Record | None:
        members = ("collection", "field", "related_collection", "meta", "schema")
        result = self._known(record, members, (RELATION_META, RELATION_SCHEMA), path)
        many_side = self._fields.get((str(record["collection"]), str(record["field"])))
        related = result["related_collection"] = _our_name(record.get("related_collection"))
        if many_side is None or not (related is None or self._is_table(related)):
            self.ignore(path, "one of its sides is not in the snapshot")
            return None
        schema = result.get("schema")
        if isinstance(schema, dict):
            self._keep_required(schema, many_side, f"{path}.schema")
        meta = result.get("meta")
        if not isinstance(meta, dict):
            return result
        if str(related).startswith(SYSTEM_PREFIX) and meta.get("one_field") is not None:
            self.ignore(f"{path}.meta.one_field", _FIXED)
            meta["one_field"] = None
        if meta.get("one_allowed_collections"):
            meta["one_allowed_collections"] = self._tables(
                meta["one_allowed_collections"], f"{path}.meta.one_allowed_collections"
            )
        return result

    def _keep_required(self, schema: Record, many_side: Record, path: str) -> None:
        """Drop actions that would set a column to null that takes none."""
        column = many_side.get("schema")
        if not isinstance(column, Mapping) or column.get("is_nullable") is not False:
            return
        for key in [key for key, action in schema.items() if action == "SET NULL"]:
            self.ignore(f"{path}.{key}", "the column takes no null")
            del schema[key]

    def _tables(self, names: Iterable[object], path: str) -> list[object]:
        tables: list[object] = []
        for name in map(_our_name, names):
            if self._is_table(name):
                tables.append(name)
            else:
                self.ignore(path, f'there is no collection "{name}" in the snapshot')
        return tables

    def _is_table(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name in SYSTEM_COLLECTIONS:
            return True
        record = self._collections.get((name,))
        return record is not None and record.get("schema", {}) is not None

    # Settings

    def _known(
        self,
        record: Record,
        members: tuple[str, ...],
        settings: tuple[Settings, Settings],
        path: str,
    ) -> Record:
        """Return a record with the members and settings that the service knows."""
        result: Record = {}
        for key, value in record.items():
            if key in members:
                result[key] = value
            elif value is not None:
                self.ignore(f"{path}.{key}", _NO_COUNTERPART)
        for group, known in zip(("meta", "schema"), settings, strict=True):
            value = result.get(group)
            if isinstance(value, Mapping):
                result[group] = self._known_settings(value, known, f"{path}.{group}")
        return result

    def _known_settings(self, values: Mapping[str, object], known: Settings, path: str) -> Record:
        result: Record = {}
        for key, value in values.items():
            setting = known.get(key)
            if setting is None:
                if key not in READ_ONLY_KEYS and value is not None:
                    self.ignore(f"{path}.{key}", _NO_COUNTERPART)
            # Some databases have the empty text for no comment.
            elif value is None or (key == "comment" and value == ""):
                if setting.is_nullable:
                    result[key] = None
            else:
                try:
                    parsed = setting.parse(value)
                    result[key] = parsed if setting.cast == "text" else value
                except ValueError as error:
                    self.ignore(f"{path}.{key}", str(error))
        return result

    def _drop_dead_lists(self, relations: Iterable[Record]) -> None:
        """Drop lists without a relation, as those of items that point here by a dropped field."""
        filled: set[RecordName] = set()
        for record in relations:
            meta = record.get("meta")
            if isinstance(meta, dict):
                filled.add((str(record["related_collection"]), str(meta.get("one_field"))))
        kept: dict[RecordName, Record] = {}
        for name, record in self._fields.items():
            meta = record.get("meta")
            is_list = isinstance(meta, dict) and _LISTS.intersection(meta.get("special") or ())
            if is_list and name not in filled:
                self.ignore(f"{FIELDS}[{'.'.join(name)}]", "no relation leads to it")
            else:
                kept[name] = record
        self._fields = kept

    def _drop_missing_names(self, record: Record) -> None:
        """Drop settings of a collection that name a group or a field which is not there."""
        meta = record.get("meta")
        if not isinstance(meta, dict):
            return
        collection = record["collection"]
        path = f"{COLLECTIONS}[{collection}].meta"
        if meta.get("group") is not None and (meta["group"],) not in self._collections:
            self.ignore(f"{path}.group", f'there is no collection "{meta["group"]}"')
            meta["group"] = None
        for key in NAMING_SETTINGS[COLLECTION_RECORDS]:
            field = self._fields.get((str(collection), str(meta.get(key))))
            is_column = field is not None and field["type"] != ALIAS.name
            if meta.get(key) and not is_column:
                self.ignore(f"{path}.{key}", f'there is no column "{meta[key]}"')
                meta[key] = None
        paths = meta.get("item_duplication_fields")
        if paths:
            meta["item_duplication_fields"] = [
                name for name in paths if (collection, name.partition(".")[0]) in self._fields
            ]


def _our_name(name: object) -> object:
    """Return the name of a system collection here, of another collection the same."""
    if isinstance(name, str) and name.startswith(_PREFIX):
        return f"{SYSTEM_PREFIX}{name.removeprefix(_PREFIX)}"
    return name
