"""Entity tags: `"<version>-<answer>"` for an item, `"<answer>"` for what has no version (decisions, section 5)."""

from __future__ import annotations

import re
from hashlib import blake2b

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def etag_of(body: bytes, version: str | None = None) -> str:
    """Return the tag of an answer; `version` is what tells one version of the item's row from the next."""
    return f'"{_digest(version.encode())}-{_digest(body)}"' if version else f'"{_digest(body)}"'


def matches_etag(header: str, tag: str) -> bool:
    """Tell whether an If-None-Match header names the tag; `*` names every one."""
    return header.strip() == "*" or tag.strip('"') in _TAG.findall(header)


def matches_version(header: str, version: str | None) -> bool:
    """Tell whether an If-Match header names the version, whatever was shown of it; `*` names every one.

    A tag that a proxy has made weak counts: the version stands for the row and not for the bytes of an answer.
    """
    if header.strip() == "*":
        return True
    named = (found.rpartition("-")[0] for found in _TAG.findall(header))
    return version is not None and _digest(version.encode()) in named


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=8).hexdigest()
