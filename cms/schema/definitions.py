"""Definitions of collections and fields as clients send them, checked before anything is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import NamedTuple

from cms.errors import Problem, Refused, invalid_payload
from cms.mappings import without
from cms.schema import names
from cms.schema.meta_settings import (
    COLLECTION_KEYS,
    COLLECTION_META,
    COLLECTION_SCHEMA,
    COLUMN_SCHEMA,
    FIELD_KEYS,
    FIELD_META,
    MetaSettings,
    parse_settings,
    setting_problem,
    setting_value_problem,
    unknown_keys,
)
from cms.schema.reasons import NO_ARRAY, NO_OBJECT, not_one_of
from cms.schema.types import ALIAS, ALIAS_SPECIALS, KEY_TYPES, TYPES, type_named
from cms.schema.types.field_type import FieldType
from cms.schema.types.numbers import INTEGER
from cms.schema.types.texts import HASH, UUID

# PostgreSQL's own limit of a numeric.
_MAX_PRECISION = 1000
_MIN_HASH_LENGTH = 128
"""The characters of an argon2 hash, with room for stronger settings."""

KNOWN_SPECIALS = (
    # Markers that change nothing here are known as well: exports of Directus have them, and
    # refusing them would refuse the whole collection.
    "uuid",
    "hash",
    "cast-csv",
    "cast-json",
    "cast-boolean",
    "geometry",
    "date-created",
    "date-updated",
    "cast-timestamp",
    "cast-datetime",
    "user-created",
    "user-updated",
    "role-created",
    "role-updated",
    *ALIAS_SPECIALS,
    "conceal",
    "m2o",
    "file",
)
_NEW_TYPES = tuple(name for name, field_type in TYPES.items() if field_type.is_known)
_SPECIALS_OF_TYPES = frozenset().union(*(field_type.markers for field_type in TYPES.values()))
"""The special markers that fit some types only."""


class Inconsistency(NamedTuple):
    """A setting such as `schema.max_length` that does not fit the rest of its field."""

    setting: str
    reason: str


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """A field to be made: its type, its settings, and the settings of its column."""

    name: str
    type: FieldType
    meta: MetaSettings = attribute(default_factory=MetaSettings)
    schema: MetaSettings = attribute(default_factory=MetaSettings)
    has_record: bool = True
    """Whether the field gets a record; without one, GET answers null as its `meta`."""

    @property
    def is_alias(self) -> bool:
        return self.type is ALIAS

    @property
    def is_key(self) -> bool:
        return self.schema.get("is_primary_key") is True

    def as_key(self) -> FieldDefinition:
        """Return the field as the primary key of its collection."""
        return replace(self, schema=MetaSettings({**self.schema, "is_primary_key": True}))

    def without(self, setting: str) -> FieldDefinition:
        """Return the field without a setting of its column."""
        others = {key: value for key, value in self.schema.items() if key != setting}
        return replace(self, schema=MetaSettings(others))


@dataclass(frozen=True, slots=True)
class CollectionDefinition:
    """A collection to be made: `schema` is None for a folder, `meta` for a table without record."""

    name: str
    meta: MetaSettings | None
    schema: MetaSettings | None
    fields: tuple[FieldDefinition, ...]


def parse_collection(payload: Mapping[str, object]) -> CollectionDefinition:
    """Read the body of POST /collections.

    Raises `Refused` INVALID_PAYLOAD with all its problems.
    """
    problems = unknown_keys(payload, COLLECTION_KEYS)
    name = payload.get("collection")
    if reason := names.invalid_collection_name_reason(name):
        problems.append(_problem("collection", reason, name))
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", problems)
    schema = None
    if payload.get("schema") is not None:
        schema = parse_settings(payload["schema"], COLLECTION_SCHEMA, "schema", problems)
    fields = _parse_fields(payload.get("fields"), problems)
    # Without a schema the collection is a folder, which has no table for the columns.
    if schema is None and fields:
        problems.append(
            _problem("schema", "a collection with fields needs a schema; send {} for the usual one")
        )
    _refuse(problems)
    # Only a table has a key; a folder has no columns at all.
    if schema is not None:
        fields = _with_key(fields)
        # GET answers null for a table without a record: to send that back makes none.
        if _is_null(payload, "meta"):
            return CollectionDefinition(str(name), None, schema, fields)
    return CollectionDefinition(str(name), meta, schema, fields)


def parse_field(payload: object, prefix: str = "") -> FieldDefinition:
    """Read the body of POST /fields/{collection}.

    Raises `Refused` INVALID_PAYLOAD with all its problems.
    """
    problems: list[Problem] = []
    field = _parse_field(payload, prefix, problems)
    _refuse(problems)
    assert field
    return field


def _parse_fields(payload: object, problems: list[Problem]) -> tuple[FieldDefinition, ...]:
    if payload is None:
        return ()
    if not isinstance(payload, list):
        problems.append(_problem("fields", NO_ARRAY))
        return ()
    fields: list[FieldDefinition] = []
    for index, item in enumerate(payload):
        field = _parse_field(item, f"fields[{index}].", problems)
        if field:
            fields.append(field)
    _check_duplicates(fields, problems)
    return tuple(fields)


def _check_duplicates(fields: list[FieldDefinition], problems: list[Problem]) -> None:
    names_before: set[str] = set()
    for field in fields:
        if field.name in names_before:
            problems.append(_problem("fields", f'"{field.name}" is there twice'))
        names_before.add(field.name)
    keys = [field for field in fields if field.is_key]
    if len(keys) > 1:
        problems.append(_problem("fields", "a collection has one primary key"))


def _parse_field(payload: object, prefix: str, problems: list[Problem]) -> FieldDefinition | None:
    """Read a field; its problems are added to `problems`, at paths that begin with `prefix`."""
    if not isinstance(payload, Mapping):
        problems.append(_problem(prefix.rstrip(".") or "body", NO_OBJECT))
        return None
    # Problems of other fields are in the list already.
    count_before = len(problems)
    problems.extend(unknown_keys(payload, FIELD_KEYS, prefix))
    name = payload.get("field")
    field_type = type_named(payload.get("type"))
    payload = in_our_words(payload, field_type)
    if reason := names.invalid_field_name_reason(name, is_alias=field_type is ALIAS):
        problems.append(_problem(f"{prefix}field", reason, name))
    if field_type is None or not field_type.is_known:
        reason = not_one_of(_NEW_TYPES)
        problems.append(_problem(f"{prefix}type", reason, payload.get("type")))
    meta = parse_settings(payload.get("meta"), FIELD_META, f"{prefix}meta", problems)
    schema = parse_settings(payload.get("schema"), COLUMN_SCHEMA, f"{prefix}schema", problems)
    # Settings that cannot be read would only cause further problems in what follows.
    if len(problems) > count_before or field_type is None:
        return None
    field = FieldDefinition(str(name), field_type, meta, schema)
    for setting, reason in _inconsistencies(field):
        problems.append(_problem(f"{prefix}{setting}", reason, _setting_value(field, setting)))
    meta = with_implied_specials(field)
    # Without its record an alias would not be there.
    has_record = field.is_alias or bool(meta["special"]) or not _is_null(payload, "meta")
    return replace(field, meta=meta, has_record=has_record)


def _is_null(payload: Mapping[str, object], key: str) -> bool:
    return key in payload and payload[key] is None


def _setting_value(field: FieldDefinition, setting: str) -> object:
    """Return the value of a setting such as `type` or `schema.max_length`."""
    if setting == "type":
        return field.type.name
    group, _, key = setting.partition(".")
    if group == "meta":
        return field.meta.get(key)
    return field.schema.get(key)


def _inconsistencies(field: FieldDefinition) -> Iterator[Inconsistency]:
    """Yield the settings of a definition that do not fit together."""
    field_type = field.type
    special = field.meta.get("special")
    if field.is_key and field_type.name not in KEY_TYPES:
        yield Inconsistency("type", f"a primary key is one of {', '.join(KEY_TYPES)}")
    yield from _column_inconsistencies(field_type, field.schema)
    yield from hash_inconsistencies(field_type, special, field.schema)
    yield from precision_inconsistencies(field_type, field.schema)
    yield from _alias_inconsistencies(field)
    yield from special_inconsistencies(field_type, special)


def _column_inconsistencies(field_type: FieldType, schema: MetaSettings) -> Iterator[Inconsistency]:
    has_default = schema.get("default_value") is not None
    if schema.get("has_auto_increment"):
        if not field_type.is_whole_number:
            reason = "only whole numbers count up by themselves"
            yield Inconsistency("schema.has_auto_increment", reason)
        if has_default:
            reason = "a field that counts up has no default of its own"
            yield Inconsistency("schema.default_value", reason)
    yield from length_inconsistencies(field_type, schema)
    if field_type.seal and has_default:
        yield Inconsistency("schema.default_value", "a secret that everybody knows is none")


def special_inconsistencies(field_type: FieldType, special: object) -> Iterator[Inconsistency]:
    """Yield the special markers that are unknown, do not fit a type, or are there twice."""
    if isinstance(special, list):
        for reason in _unfit_markers(field_type, special):
            yield Inconsistency("meta.special", reason)


def _unfit_markers(field_type: FieldType, markers: list[str]) -> Iterator[str]:
    """Yield why special markers cannot be those of a field of the type."""
    distinct = list(dict.fromkeys(markers))
    for marker in distinct:
        if marker not in KNOWN_SPECIALS:
            yield f'"{marker}" is not known; there are {", ".join(KNOWN_SPECIALS)}'
    # Markers that fit no type in particular, such as `conceal`, fit them all.
    for marker in markers:
        if marker in _SPECIALS_OF_TYPES - field_type.markers:
            yield f"{marker} does not fit the type {field_type.name}"
    for marker in distinct:
        if markers.count(marker) > 1:
            yield f"{marker} is there twice"


def length_inconsistencies(
    field_type: FieldType, schema: Mapping[str, object]
) -> Iterator[Inconsistency]:
    """Yield a column's length where the type has none."""
    if schema.get("max_length") is not None and "max_length" not in field_type.size_settings:
        yield Inconsistency("schema.max_length", "only strings have a length")


def hash_inconsistencies(
    field_type: FieldType, special: object, schema: Mapping[str, object]
) -> Iterator[Inconsistency]:
    """Yield a column's length where it is too short for hashes."""
    # A text with the marker of hashes is read back as one, whatever type was sent for it.
    has_hashes = field_type.seal or (isinstance(special, list) and HASH.marker in special)
    length = schema.get("max_length")
    if has_hashes and isinstance(length, int) and length < _MIN_HASH_LENGTH:
        reason = f"a hash takes at least {_MIN_HASH_LENGTH} characters"
        yield Inconsistency("schema.max_length", reason)


def precision_inconsistencies(
    field_type: FieldType, schema: Mapping[str, object]
) -> Iterator[Inconsistency]:
    """Yield a precision or a scale that does not fit the type, or that do not fit each other."""
    precision = schema.get("numeric_precision")
    scale = schema.get("numeric_scale")
    assert precision is None or isinstance(precision, int)
    if precision is None and scale is None:
        return
    if "numeric_precision" not in field_type.size_settings:
        yield Inconsistency("schema", "only decimals have a precision and a scale")
    elif precision is None:
        yield Inconsistency("schema.numeric_scale", "a scale needs a precision")
    elif not 1 <= precision <= _MAX_PRECISION:
        reason = f"it must be from 1 to {_MAX_PRECISION}"
        yield Inconsistency("schema.numeric_precision", reason)
    elif isinstance(scale, int) and scale > precision:
        yield Inconsistency("schema.numeric_scale", "it must not be larger than the precision")


def _alias_inconsistencies(field: FieldDefinition) -> Iterator[Inconsistency]:
    special = field.meta.get("special") or []
    assert isinstance(special, list)
    if field.is_alias and special and not ALIAS_SPECIALS.intersection(special):
        reason = f"an alias is one of {', '.join(sorted(ALIAS_SPECIALS))}"
        yield Inconsistency("meta.special", reason)
    elif field.is_alias and field.schema:
        yield Inconsistency("schema", "an alias has no column")


def with_implied_specials(field: FieldDefinition) -> MetaSettings:
    """Return a field's settings with the special markers that its type implies.

    Some types can be read back from their column by the marker only: csv is text in PostgreSQL.
    """
    special = list(field.meta.get("special") or [])  # type: ignore[call-overload]
    implied = field.type.marker
    if field.is_alias and not special:
        special = ["alias", "no-data"]
    if implied and implied not in special:
        special.append(implied)
    return MetaSettings({**field.meta, "special": special or None})


def _with_key(fields: tuple[FieldDefinition, ...]) -> tuple[FieldDefinition, ...]:
    """Return the fields of a table, one of which is its primary key.

    Without one, the field that counts up is; without such a field, there is a new `id`.
    """
    if any(field.is_key for field in fields):
        return fields
    counting = [field for field in fields if field.schema.get("has_auto_increment")]
    if len(counting) == 1:
        return tuple(field.as_key() if field in counting else field for field in fields)
    if any(field.name == "id" for field in fields):
        raise invalid_payload(
            'The field "id" must be the primary key, or another field must be', field="fields"
        )
    # The flags of `meta` are stored, as the texts that columns take; those of `schema` are not.
    meta = MetaSettings(readonly="true", hidden="true")
    schema = MetaSettings(is_primary_key=True, has_auto_increment=True)
    return (FieldDefinition("id", INTEGER, meta, schema), *fields)


def _problem(path: str, reason: str, value: object = None) -> Problem:
    """Return the problem of a setting; a value that is missing is not named."""
    if value is None:
        return setting_problem(path, reason)
    return setting_value_problem(path, reason, value)


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Refused(problems)


# Fields as clients of Directus write them, in the words of this service (docs/directus.md)

_FORMER_MARKERS = {"boolean": "cast-boolean", "csv": "cast-csv", "json": "cast-json"}
"""Special markers by their former names."""

_NUMBER_SIZES = ("numeric_precision", "numeric_scale")


def in_our_words(
    payload: Mapping[str, object], field_type: FieldType | None, *, is_part_of_key: bool = False
) -> Mapping[str, object]:
    """Return the body of a field of a type with settings that mean something for that type.

    What cannot be read stays as it is, to be refused. `is_part_of_key` tells that the column is one
    of several of the primary key.
    """
    result = dict(payload)
    meta = payload.get("meta")
    if isinstance(meta, Mapping) and isinstance(meta.get("special"), list):
        result["meta"] = {**meta, "special": _markers(meta["special"], field_type)}
    schema = payload.get("schema")
    if isinstance(schema, Mapping) and field_type is not None:
        result["schema"] = _column_settings(schema, field_type, is_part_of_key=is_part_of_key)
    return result


def _markers(special: list[object], field_type: FieldType | None) -> list[object]:
    result: list[object] = []
    for marker in special:
        name = _FORMER_MARKERS.get(str(marker), marker)
        # A former name that says nothing of this type is dropped.
        if name is marker or field_type is None or name in field_type.markers:
            result.append(name)
    return result


def _column_settings(
    schema: Mapping[str, object], field_type: FieldType, *, is_part_of_key: bool
) -> dict[str, object]:
    settings = without(schema, ("length", *_meaningless(schema, field_type)))
    length = schema.get("length")
    if length is not None and "max_length" in field_type.size_settings:
        settings.setdefault("max_length", length)
    # A key is unique, and what makes a column unique is an index.
    for implying, implied in (("is_primary_key", "is_unique"), ("is_unique", "is_indexed")):
        if is_part_of_key and implying == "is_primary_key":
            continue
        if settings.get(implying) is True and implied in settings:
            settings[implied] = True
    return settings


def _meaningless(schema: Mapping[str, object], field_type: FieldType) -> tuple[str, ...]:
    """Return the settings that say no more than the type does."""
    if field_type is UUID:
        return ("max_length",)
    if not field_type.is_whole_number:
        return ()
    # The database's own words for counting up.
    default = schema.get("default_value")
    if schema.get("has_auto_increment") is True and str(default).startswith("nextval("):
        return (*_NUMBER_SIZES, "default_value")
    return _NUMBER_SIZES
