"""Entity tags: `"<version>-<answer>"` for an item, `"<answer>"` for answers without a version."""

from __future__ import annotations

import re
from hashlib import blake2b

_DIGEST_SIZE = 8
"""Bytes of a digest: a tag is compared with the present tag of its own address only."""

# A list of tags, weak ones among them: W/"abc", "def".
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def etag_of(body: bytes, version: str | None = None) -> str:
    """Return the tag of an answer; `version` tells versions of the item's row apart."""
    # "<digest of the row's version>-<digest of the answer>": If-Match compares the first part, If-
    # None-Match the whole.
    digest = blake2b(body, digest_size=_DIGEST_SIZE).hexdigest()
    if version:
        return f'"{_digest(version)}-{digest}"'
    return f'"{digest}"'


def matches_etag(header: str, tag: str) -> bool:
    """Tell whether an If-None-Match header names the tag; `*` names every tag."""
    return header.strip() == "*" or tag.strip('"') in _TAG.findall(header)


def matches_version(header: str, version: str | None) -> bool:
    """Tell whether an If-Match header names the version, whichever fields the client read.

    `*` names every version. A tag that a proxy made weak counts: the version is of the row, not of
    the bytes of an answer.
    """
    if header.strip() == "*":
        return True
    if version is None:
        return False
    versions = (tag.rpartition("-")[0] for tag in _TAG.findall(header))
    return _digest(version) in versions


def _digest(version: str) -> str:
    return blake2b(version.encode(), digest_size=_DIGEST_SIZE).hexdigest()
