"""Definitions of collections and fields as clients send them, checked whole before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cms.errors import Problem, Refused, abbreviated, invalid_payload
from cms.schema import names
from cms.schema.build import ALIAS_SPECIALS
from cms.schema.meta_settings import (
    COLLECTION_KEYS,
    COLLECTION_META,
    COLLECTION_SCHEMA,
    COLUMN_SCHEMA,
    FIELD_KEYS,
    FIELD_META,
    MetaSettings,
    parse_settings,
    unknown_keys,
)
from cms.schema.types import TYPES, Family

KEY_TYPES = ("integer", "bigInteger", "string", "uuid")

IMPLIED_SPECIALS = {
    "json": "cast-json",
    "csv": "cast-csv",
    "boolean": "cast-boolean",
    "hash": "hash",
}
_LENGTH_TYPES = frozenset({"string", "hash"})
_MAX_PRECISION = 1000
_MIN_HASH_LENGTH = 128
"""Characters of a column that holds what argon2 makes, with room for stronger settings."""

_TEXT_FAMILIES = frozenset({Family.TEXT, Family.CSV, Family.HASH})
_ID_FAMILIES = frozenset({Family.UUID, Family.TEXT})
_SPECIAL_FAMILIES = {
    "uuid": _ID_FAMILIES,
    "hash": _TEXT_FAMILIES,
    "cast-csv": _TEXT_FAMILIES,
    "cast-json": _TEXT_FAMILIES | {Family.JSON},
    "cast-boolean": frozenset({Family.BOOLEAN, Family.NUMBER}),
    "geometry": frozenset({Family.GEOMETRY}),
    "date-created": frozenset({Family.MOMENT}),
    "date-updated": frozenset({Family.MOMENT}),
    "cast-timestamp": frozenset({Family.MOMENT}),
    "cast-datetime": frozenset({Family.MOMENT}),
    "user-created": _ID_FAMILIES,
    "user-updated": _ID_FAMILIES,
    "role-created": _ID_FAMILIES,
    "role-updated": _ID_FAMILIES,
    **dict.fromkeys(ALIAS_SPECIALS, frozenset({Family.ALIAS})),
}
"""The families of types that a special marker fits; one that is not here fits every type.

`cast-timestamp` and `cast-datetime` do nothing: Directus writes them into the records of its fields.
"""
KNOWN_SPECIALS = (*_SPECIAL_FAMILIES, "conceal", "m2o", "file")


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """A field to be made: its type's name, its settings, its column's settings."""

    name: str
    type_name: str
    meta: MetaSettings = field(default_factory=MetaSettings)
    schema: MetaSettings = field(default_factory=MetaSettings)

    @property
    def is_alias(self) -> bool:
        return self.type_name == "alias"

    @property
    def is_key(self) -> bool:
        return self.schema.get("is_primary_key") is True


@dataclass(frozen=True, slots=True)
class CollectionDefinition:
    """A collection to be made; `schema` is None for a folder."""

    name: str
    meta: MetaSettings
    schema: MetaSettings | None
    fields: tuple[FieldDefinition, ...]


def parse_collection(payload: Mapping[str, object]) -> CollectionDefinition:
    """Read the body of POST /collections; raises `Refused` INVALID_PAYLOAD with all that is wrong."""
    problems = unknown_keys(payload, COLLECTION_KEYS)
    name = payload.get("collection")
    if fault := names.fault_of_collection_name(name):
        problems.append(_problem("collection", fault, name))
    meta = parse_settings(payload.get("meta"), COLLECTION_META, "meta", problems)
    schema = payload.get("schema")
    settings = (
        None if schema is None else parse_settings(schema, COLLECTION_SCHEMA, "schema", problems)
    )
    fields = _fields(payload.get("fields"), problems)
    if settings is None and fields:
        problems.append(
            _problem("schema", "a collection with fields needs a schema; send {} for the usual one")
        )
    _refuse(problems)
    whole = fields if settings is None else _with_key(fields)
    return CollectionDefinition(str(name), meta, settings, whole)


def parse_field(payload: object, place: str = "") -> FieldDefinition:
    """Read the body of POST /fields/{collection}; raises `Refused` INVALID_PAYLOAD with all that is wrong."""
    problems: list[Problem] = []
    found = _field(payload, place, problems)
    _refuse(problems)
    assert found
    return found


def _fields(given: object, problems: list[Problem]) -> tuple[FieldDefinition, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        problems.append(_problem("fields", "it must be an array"))
        return ()
    found = [_field(item, f"fields[{n}].", problems) for n, item in enumerate(given)]
    whole = tuple(item for item in found if item)
    _check_together(whole, problems)
    return whole


def _check_together(fields: tuple[FieldDefinition, ...], problems: list[Problem]) -> None:
    seen: set[str] = set()
    for item in fields:
        if item.name in seen:
            problems.append(_problem("fields", f'"{item.name}" is there twice'))
        seen.add(item.name)
    if sum(item.is_key for item in fields) > 1:
        problems.append(_problem("fields", "a collection has one primary key"))


def _field(payload: object, place: str, problems: list[Problem]) -> FieldDefinition | None:
    if not isinstance(payload, Mapping):
        problems.append(_problem(place.rstrip(".") or "body", "it must be an object"))
        return None
    before = len(problems)
    problems.extend(unknown_keys(payload, FIELD_KEYS, place))
    name, type_name = payload.get("field"), payload.get("type")
    if fault := names.fault_of_name(name):
        problems.append(_problem(f"{place}field", fault, name))
    type_name = "datetime" if type_name == "dateTime" else type_name
    if not isinstance(type_name, str) or type_name not in TYPES or type_name == "unknown":
        takes = ", ".join(known for known in TYPES if known != "unknown")
        problems.append(_problem(f"{place}type", f"it must be one of {takes}", type_name))
    meta = parse_settings(payload.get("meta"), FIELD_META, f"{place}meta", problems)
    schema = parse_settings(payload.get("schema"), COLUMN_SCHEMA, f"{place}schema", problems)
    if len(problems) > before:
        return None
    found = FieldDefinition(str(name), str(type_name), meta, schema)
    problems.extend(
        _problem(f"{place}{where}", why, _sent(found, where))
        for where, why in _inconsistencies(found)
    )
    return replace(found, meta=_with_implied_specials(found))


def _sent(found: FieldDefinition, place: str) -> object:
    """Return what a definition says at a place such as `type` or `schema.max_length`."""
    if place == "type":
        return found.type_name
    group, _, key = place.partition(".")
    return (found.meta if group == "meta" else found.schema).get(key)


def _inconsistencies(found: FieldDefinition) -> list[tuple[str, str]]:
    """Return what of a definition does not go together."""
    schema, faults = found.schema, []
    if found.is_key and found.type_name not in KEY_TYPES:
        faults.append(("type", f"a primary key is one of {', '.join(KEY_TYPES)}"))
    if schema.get("has_auto_increment") and found.type_name not in ("integer", "bigInteger"):
        faults.append(("schema.has_auto_increment", "only whole numbers count up by themselves"))
    if schema.get("has_auto_increment") and schema.get("default_value") is not None:
        faults.append(("schema.default_value", "a field that counts up has no default of its own"))
    if schema.get("max_length") is not None and found.type_name not in _LENGTH_TYPES:
        faults.append(("schema.max_length", "only strings have a length"))
    if found.type_name == "hash" and schema.get("default_value") is not None:
        faults.append(("schema.default_value", "a secret that everybody knows is none"))
    faults += faults_of_hash(
        found.type_name, found.meta.get("special"), schema
    ) + faults_of_precision(found.type_name, schema)
    return (
        faults
        + _faults_of_alias(found)
        + faults_of_special(found.type_name, found.meta.get("special"))
    )


def faults_of_special(type_name: str, special: object) -> list[tuple[str, str]]:
    """Return which special markers there are not, which do not fit a type, and which are there twice."""
    family = TYPES[type_name].family
    given = special if isinstance(special, list) else []
    unknown = [marker for marker in dict.fromkeys(given) if marker not in KNOWN_SPECIALS]
    unfit = [marker for marker in given if family not in _SPECIAL_FAMILIES.get(marker, (family,))]
    repeated = [marker for marker in dict.fromkeys(given) if given.count(marker) > 1]
    return [
        *(
            ("meta.special", f'"{marker}" is not known; there are {", ".join(KNOWN_SPECIALS)}')
            for marker in unknown
        ),
        *(("meta.special", f"{marker} does not fit the type {type_name}") for marker in unfit),
        *(("meta.special", f"{marker} is there twice") for marker in repeated),
    ]


def faults_of_hash(
    type_name: str, special: object, schema: Mapping[str, object]
) -> list[tuple[str, str]]:
    """Return what is wrong with the length of a column of hashes."""
    length, marked = schema.get("max_length"), isinstance(special, list) and "hash" in special
    if (
        not (type_name == "hash" or marked)
        or not isinstance(length, int)
        or length >= _MIN_HASH_LENGTH
    ):
        return []
    return [("schema.max_length", f"a hash takes at least {_MIN_HASH_LENGTH} characters")]


def faults_of_precision(type_name: str, schema: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return what is wrong with a precision and a scale."""
    precision, scale = schema.get("numeric_precision"), schema.get("numeric_scale")
    if type_name != "decimal":
        return (
            []
            if precision is None and scale is None
            else [("schema", "only decimals have a precision and a scale")]
        )
    if precision is None:
        return [] if scale is None else [("schema.numeric_scale", "a scale needs a precision")]
    assert isinstance(precision, int)
    if not 1 <= precision <= _MAX_PRECISION:
        return [("schema.numeric_precision", f"it must be from 1 to {_MAX_PRECISION}")]
    if isinstance(scale, int) and scale > precision:
        return [("schema.numeric_scale", "it must not be larger than the precision")]
    return []


def _faults_of_alias(found: FieldDefinition) -> list[tuple[str, str]]:
    special = found.meta.get("special") or []
    assert isinstance(special, list)
    if found.is_alias and special and not ALIAS_SPECIALS.intersection(special):
        return [("meta.special", f"an alias is one of {', '.join(sorted(ALIAS_SPECIALS))}")]
    if found.is_alias and found.schema:
        return [("schema", "an alias has no column")]
    return []


def _with_implied_specials(found: FieldDefinition) -> MetaSettings:
    """Add the special markers that a type implies; some types cannot be told from a column without them."""
    special = list(found.meta.get("special") or [])  # type: ignore[call-overload]
    implied = IMPLIED_SPECIALS.get(found.type_name)
    if found.is_alias and not special:
        special = ["alias", "no-data"]
    if TYPES[found.type_name].family is Family.GEOMETRY:
        implied = "geometry"
    if implied and implied not in special:
        special.append(implied)
    return MetaSettings({**found.meta, "special": special or None})


def _with_key(fields: tuple[FieldDefinition, ...]) -> tuple[FieldDefinition, ...]:
    """A table without a primary key among its fields gets an `id` that counts up."""
    if any(item.is_key for item in fields):
        return fields
    if any(item.name == "id" for item in fields):
        raise invalid_payload(
            'The field "id" must be the primary key, or another field must be', field="fields"
        )
    schema = MetaSettings(is_primary_key=True, has_auto_increment=True)
    return (
        FieldDefinition("id", "integer", MetaSettings(readonly="true", hidden="true"), schema),
        *fields,
    )


def _problem(place: str, reason: str, sent: object = None) -> Problem:
    value = {} if sent is None else {"value": abbreviated(sent)}
    extensions = {"reason": reason, "field": place, **value}
    return Problem("INVALID_PAYLOAD", f"Invalid payload. {place}: {reason}.", extensions)


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Refused(problems)
