"""The formats of files for an import, by the ends of their names and by their media types."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

IMPORT_FORMAT_BY_SUFFIX: Mapping[str, str] = MappingProxyType(
    {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}
)
IMPORT_FORMAT_BY_MEDIA_TYPE: Mapping[str, str] = MappingProxyType(
    {
        "text/csv": "csv",
        "text/tab-separated-values": "csv",
        "application/json": "json",
        "application/x-ndjson": "jsonl",
        "application/jsonl": "jsonl",
    }
)
IMPORT_FORMATS = tuple(dict.fromkeys(IMPORT_FORMAT_BY_MEDIA_TYPE.values()))


def media_type_of(import_format: str) -> str:
    """Return the first media type of a format."""
    for media_type, name in IMPORT_FORMAT_BY_MEDIA_TYPE.items():
        if name == import_format:
            return media_type
    raise KeyError(import_format)
