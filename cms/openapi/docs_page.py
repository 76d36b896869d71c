"""The page of /docs: the document of OpenAPI in a viewer that asks no other server."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from cms.errors import not_found
from cms.etags import etag_of

_FOLDER = Path(__file__).parent / "page"
_JAVASCRIPT = "text/javascript; charset=utf-8"
_MEDIA_TYPES = MappingProxyType(
    {
        "page.css": "text/css; charset=utf-8",
        "page.js": _JAVASCRIPT,
        # RapiDoc as its authors build it; its licence is beside it.
        "rapidoc-min.js": _JAVASCRIPT,
    }
)

# Scripts by a nonce and not by 'self': a file that somebody has uploaded is on this host as well.
# The viewer has its styles in its elements, and shows images of answers as blobs.
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class PageFile(NamedTuple):
    """A file that the page loads."""

    content: bytes
    media_type: str
    etag: str


def page_html(nonce: str) -> str:
    """Return the page, whose scripts have a nonce that is new for each answer."""
    return _template().replace("{nonce}", nonce)


def page_policy(nonce: str) -> str:
    """Return the Content-Security-Policy of the page."""
    return _POLICY.format(nonce=nonce)


@cache
def page_file(name: str) -> PageFile:
    """Return a file that the page loads; raises `Refused` with NOT_FOUND."""
    # Only the names of the table: what a client sends never becomes a path.
    if name not in _MEDIA_TYPES:
        raise not_found("file")
    content = (_FOLDER / name).read_bytes()
    return PageFile(content, _MEDIA_TYPES[name], etag_of(content))


@cache
def _template() -> str:
    return (_FOLDER / "page.html").read_text(encoding="utf-8")
