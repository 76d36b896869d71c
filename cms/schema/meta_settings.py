"""The keys of `meta` and `schema` that a client may set, with their types, as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from cms.errors import Problem, abbreviated
from cms.schema.reasons import NO_OBJECT, NO_STRING, not_one_of
from cms.schema.referential_actions import ACTIONS_BY_CODE
from cms.schema.system import COLLECTIONS, FIELDS, RELATIONS, choices_of
from cms.schema.types.numbers import BOOLEAN, INTEGER
from cms.schema.types.structures import JSON
from cms.schema.types.texts import TEXT
from cms.text_shapes import COLOR

MAX_SEARCH_WEIGHT = 1_000
"""The largest weight of a field, for results of a search that are sorted by relevance."""

ParseSetting = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class MetaSetting:
    """One key: the function that reads its value, and the type of the column that stores it.

    `cast` is empty for settings of a column, which no table of the service stores.
    """

    parse: ParseSetting
    cast: str
    is_nullable: bool = True


def one_of(*allowed: str) -> ParseSetting:
    def parse(value: object) -> str:
        if value not in allowed:
            raise ValueError(not_one_of(allowed))
        return str(value)

    return parse


def parse_boolean(value: object) -> bool:
    return BOOLEAN.parse(value) == "true"


def parse_size(value: object) -> int:
    # The parser of the type first, so that "20" and 20 mean the same as in items.
    number = int(INTEGER.parse(value))
    # PostgreSQL takes no longer varchar.
    if not 0 <= number <= 10_485_760:
        raise ValueError("it must be a whole number from 0 to 10485760")
    return number


def parse_search_weight(value: object) -> str:
    weight = INTEGER.parse(value)
    if not 1 <= int(weight) <= MAX_SEARCH_WEIGHT:
        raise ValueError(f"it must be a whole number from 1 to {MAX_SEARCH_WEIGHT}")
    return weight


def parse_length(value: object) -> int:
    length = parse_size(value)
    if length == 0:
        raise ValueError("it must be at least 1")
    return length


def string_list(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("it must be an array of strings")
    return value


def parse_paths(value: object) -> str:
    return JSON.parse(string_list(value))


def parse_color(value: object) -> str:
    if not isinstance(value, str) or not COLOR.fullmatch(value):
        raise ValueError("it must be a hex color code such as #6644FF")
    return value


def parse_translations(value: object) -> str:
    """Take names in several languages, `[{"language": "de-DE", "translation": "Artikel"}]`."""
    if not isinstance(value, list):
        raise ValueError("it must be an array of objects with language and translation")
    for index, entry in enumerate(value):
        if reason := _invalid_translation_reason(entry):
            raise ValueError(f"entry {index}: {reason}")
    return JSON.parse(value)


def _invalid_translation_reason(entry: object) -> str | None:
    if not isinstance(entry, Mapping):
        return NO_OBJECT
    if unknown := entry.keys() - set(_TRANSLATION_KEYS):
        return f'it does not take "{min(unknown)}"; there are {", ".join(_TRANSLATION_KEYS)}'
    if not isinstance(entry.get("language"), str) or not entry["language"]:
        return "language must be a string such as de-DE"
    for key, text in entry.items():
        if text is not None and not isinstance(text, str):
            return f"{key} must be a string"
    return None


def parse_preview_url(value: object) -> str:
    """Take an address or a path, in which `{{field}}` stands for a value of the item."""
    if not isinstance(value, str):
        raise ValueError(NO_STRING)
    # Placeholders may hold spaces, which the rest of an address must not.
    without_names = _PLACEHOLDER.sub("{{}}", value)
    if not _PREVIEW_URL.fullmatch(without_names):
        raise ValueError(
            "it must be an address such as https://example.com/articles/{{slug}}, or a path"
        )
    return value


def anything(value: object) -> object:
    return value


_PLACEHOLDER = re.compile(r"\{\{[^{}\n]*\}\}")
_TRANSLATION_KEYS = ("language", "translation", "singular", "plural")
# https://…, a path, or an address that begins with a placeholder. Other schemes, such as
# javascript:, would run in the browser of whoever opens the preview.
_PREVIEW_URL = re.compile(r"(https?://|/|\{\{)[^\s\x00-\x1f\x7f]*", re.IGNORECASE)

_TEXT = MetaSetting(TEXT.parse, "text")
_JSON = MetaSetting(JSON.parse, "json")
_INTEGER = MetaSetting(INTEGER.parse, "integer")
_TRANSLATIONS = MetaSetting(parse_translations, "json")
# Flags have a default in their table, and so cannot be null.
_FLAG = MetaSetting(BOOLEAN.parse, "boolean", is_nullable=False)

COLLECTION_META: Mapping[str, MetaSetting] = MappingProxyType(
    {
        "icon": _TEXT,
        "color": MetaSetting(parse_color, "text"),
        "note": _TEXT,
        "display_template": _TEXT,
        "preview_url": MetaSetting(parse_preview_url, "text"),
        "hidden": _FLAG,
        "singleton": _FLAG,
        "translations": _TRANSLATIONS,
        "archive_field": _TEXT,
        "archive_app_filter": _FLAG,
        "archive_value": _TEXT,
        "unarchive_value": _TEXT,
        "sort_field": _TEXT,
        "accountability": MetaSetting(one_of(*choices_of(COLLECTIONS, "accountability")), "text"),
        "item_duplication_fields": MetaSetting(parse_paths, "json"),
        "sort": _INTEGER,
        "group": _TEXT,
        "collapse": MetaSetting(
            one_of(*choices_of(COLLECTIONS, "collapse")), "text", is_nullable=False
        ),
        "versioning": _FLAG,
        "searchable": _FLAG,
    }
)

FIELD_META: Mapping[str, MetaSetting] = MappingProxyType(
    {
        "special": MetaSetting(string_list, "text[]"),
        "interface": _TEXT,
        "options": _JSON,
        "display": _TEXT,
        "display_options": _JSON,
        "readonly": _FLAG,
        "hidden": _FLAG,
        "sort": _INTEGER,
        "width": MetaSetting(
            one_of("half", "half-left", "half-right", "half-space", "full", "fill"), "text"
        ),
        "translations": _TRANSLATIONS,
        "note": _TEXT,
        "conditions": _JSON,
        "required": _FLAG,
        "group": _TEXT,
        "validation": _JSON,
        "validation_message": _TEXT,
        # Null means unset, which differs from true only for a relation.
        "searchable": MetaSetting(BOOLEAN.parse, "boolean"),
        "search_weight": MetaSetting(parse_search_weight, "integer"),
    }
)

NAMING_SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        COLLECTIONS: ("sort_field", "archive_field"),
        FIELDS: ("group",),
        RELATIONS: ("junction_field", "sort_field", "one_collection_field"),
    }
)
"""The settings that name a field of the record's own collection, by the tables of the records."""

COLUMN_SCHEMA: Mapping[str, MetaSetting] = MappingProxyType(
    {
        # Read later, when the type of the field is known (`default_value` of cms/schema/ddl.py).
        "default_value": MetaSetting(anything, ""),
        "max_length": MetaSetting(parse_length, ""),
        "numeric_precision": MetaSetting(parse_size, ""),
        "numeric_scale": MetaSetting(parse_size, ""),
        "is_nullable": MetaSetting(parse_boolean, ""),
        "is_unique": MetaSetting(parse_boolean, ""),
        "is_indexed": MetaSetting(parse_boolean, ""),
        "is_primary_key": MetaSetting(parse_boolean, ""),
        "has_auto_increment": MetaSetting(parse_boolean, ""),
        "comment": _TEXT,
    }
)

COLUMN_SIZES = ("max_length", "numeric_precision", "numeric_scale")

COLLECTION_SCHEMA: Mapping[str, MetaSetting] = MappingProxyType({"comment": _TEXT})

_ACTIONS = one_of(*ACTIONS_BY_CODE.values())

RELATION_META: Mapping[str, MetaSetting] = MappingProxyType(
    {
        "one_field": _TEXT,
        "one_collection_field": _TEXT,
        "one_allowed_collections": MetaSetting(string_list, "text[]"),
        "junction_field": _TEXT,
        "sort_field": _TEXT,
        "one_deselect_action": MetaSetting(
            one_of(*choices_of(RELATIONS, "one_deselect_action")), "text", is_nullable=False
        ),
    }
)

RELATION_SCHEMA: Mapping[str, MetaSetting] = MappingProxyType(
    {
        "on_delete": MetaSetting(_ACTIONS, "", is_nullable=False),
        "on_update": MetaSetting(_ACTIONS, "", is_nullable=False),
    }
)

READ_ONLY_KEYS = frozenset(
    {
        "id",
        "collection",
        "field",
        "system",
        "search_index",
        "index_build",
        "unique_build",
        "foreign_key_check",
        "columns",
        "name",
        "table",
        "column",
        "schema",
        "data_type",
        "is_generated",
        "generation_expression",
        "foreign_key_table",
        "foreign_key_column",
        "foreign_key_schema",
        "constraint_name",
        "sql",
        "collation",
        "engine",
        "many_collection",
        "many_field",
        "one_collection",
        "junction_collection",
    }
)
"""Keys that only answers have. Bodies may have them too, without effect: clients send whole records
back."""


COLLECTION_KEYS = ("collection", "meta", "schema", "fields")
FIELD_KEYS = ("collection", "field", "type", "meta", "schema")
RELATION_KEYS = ("collection", "field", "related_collection", "meta", "schema")


# A class of its own, so that mypy tells settings that were read from any other dict.
class MetaSettings(dict[str, object]):
    """The parsed settings of a payload; settings that the payload lacks are not in it."""


def parse_settings(
    payload: object, known: Mapping[str, MetaSetting], path: str, problems: list[Problem]
) -> MetaSettings:
    """Return the settings of an object at a path of a body, and add its problems to `problems`."""
    settings = MetaSettings()
    if payload is None:
        return settings
    if not isinstance(payload, Mapping):
        problems.append(setting_problem(path, NO_OBJECT))
        return settings
    for key, value in payload.items():
        setting = known.get(key)
        # All settings are read: one answer names everything that is wrong with them.
        if setting is not None:
            try:
                settings[key] = _parse_value(setting, value)
            except ValueError as error:
                problems.append(setting_value_problem(f"{path}.{key}", str(error), value))
        elif key not in READ_ONLY_KEYS:
            problems.append(_unknown_setting(f"{path}.{key}", known))
    return settings


def unknown_keys(
    payload: Mapping[str, object], known: tuple[str, ...], prefix: str = ""
) -> list[Problem]:
    """Return a problem for each key of a body that is not known, and so would do nothing."""
    return [_unknown_setting(f"{prefix}{key}", known) for key in payload if key not in known]


def _unknown_setting(path: str, known: Iterable[str]) -> Problem:
    return setting_problem(path, f"it is not known; there are {', '.join(known)}")


def mismatched_keys(
    payload: Mapping[str, object], path_values: Mapping[str, tuple[object, ...]]
) -> list[Problem]:
    """Return a problem for each key of a body whose value is another than in the request's path."""
    reason = "it is not what the path says, and cannot be changed"
    problems: list[Problem] = []
    for key, values in path_values.items():
        if key in payload and payload[key] not in values:
            problems.append(setting_problem(key, reason))
    return problems


def _parse_value(setting: MetaSetting, value: object) -> object:
    if value is not None:
        return setting.parse(value)
    if not setting.is_nullable:
        raise ValueError("it must not be null")
    return None


def setting_problem(path: str, reason: str) -> Problem:
    """Return the problem of a setting at a path of a body."""
    extensions = {"reason": reason, "field": path}
    return Problem("INVALID_PAYLOAD", f"Invalid payload. {path}: {reason}.", extensions)


def setting_value_problem(path: str, reason: str, value: object) -> Problem:
    """Return the problem of a setting's value."""
    problem = setting_problem(path, reason)
    return replace(problem, extensions={**problem.extensions, "value": abbreviated(value)})
