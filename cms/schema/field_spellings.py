"""Fields as clients of Directus write them, in the words of this service (docs/directus.md)."""

from __future__ import annotations

from collections.abc import Mapping

from cms.mappings import without
from cms.schema.types.field_type import FieldType
from cms.schema.types.texts import UUID

_MARKERS = {"boolean": "cast-boolean", "csv": "cast-csv", "json": "cast-json"}
"""Special markers by their former names."""

_NUMBER_SIZES = ("numeric_precision", "numeric_scale")


def in_our_words(
    payload: Mapping[str, object], field_type: FieldType | None
) -> Mapping[str, object]:
    """Return the body of a field of a type with settings that mean something for that type.

    What cannot be read stays as it is, to be refused.
    """
    result = dict(payload)
    meta = payload.get("meta")
    if isinstance(meta, Mapping) and isinstance(meta.get("special"), list):
        result["meta"] = {**meta, "special": _markers(meta["special"], field_type)}
    schema = payload.get("schema")
    if isinstance(schema, Mapping) and field_type is not None:
        result["schema"] = _column_settings(schema, field_type)
    return result


def _markers(special: list[object], field_type: FieldType | None) -> list[object]:
    result: list[object] = []
    for marker in special:
        name = _MARKERS.get(str(marker), marker)
        # A former name that says nothing of this type is dropped.
        if name is marker or field_type is None or name in field_type.markers:
            result.append(name)
    return result


def _column_settings(schema: Mapping[str, object], field_type: FieldType) -> dict[str, object]:
    settings = without(schema, ("length", *_meaningless(schema, field_type)))
    length = schema.get("length")
    if length is not None and "max_length" in field_type.size_settings:
        settings.setdefault("max_length", length)
    # A key is unique, and what makes a column unique is an index.
    for implying, implied in (("is_primary_key", "is_unique"), ("is_unique", "is_indexed")):
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
