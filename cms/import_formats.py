"""The formats of files for an import, by the ends of their names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

IMPORT_FORMAT_BY_SUFFIX: Mapping[str, str] = MappingProxyType(
    {".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}
)
