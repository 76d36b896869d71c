"""/assets: the contents of files, transformed on request."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

import falcon

from cms.config import Config
from cms.errors import Problem, Refused, not_found
from cms.files.assets import Asset, AssetDelivery, Assets
from cms.files.file_names import clean_name
from cms.http.answers.conditional_requests import (
    RangeNotSatisfiable,
    byte_range_of,
    is_not_modified,
)
from cms.http.requests.request import Request
from cms.store.identity import Identity

# A browser would run these types, so they are always sent as attachments.
# HTML, SVG and every kind of XML: match() looks at the beginning only, so that parameters behind
# the type do not hide it.
_ACTIVE_CONTENT = re.compile(
    r"text/html|image/svg|[^/]+/(?:[^;]+\+)?xml|[^/]+/xhtml|text/xsl|application/xslt"
    r"|multipart/|message/"
)
_NOT_QUOTABLE = re.compile(r'[^\x20-\x7e]|["\\%/]')


class _RequestedAsset(NamedTuple):
    """A file and what to send of it: None where the client's copy is current."""

    asset: Asset
    delivery: AssetDelivery | None


class AssetResource:
    """The content of a file, under the name in the path, else under the file's own name."""

    def __init__(self, assets: Assets, config: Config) -> None:
        self._assets = assets
        seconds = int(config.assets_cache_ttl.total_seconds())
        self._public_cache = f"public, max-age={seconds}"
        self._private_cache = f"private, max-age={seconds}"
        self._sendfile = config.assets_sendfile

    def on_get(
        self, request: Request, response: falcon.Response, key: str, name: str | None = None
    ) -> None:
        identity = request.identity
        try:
            requested = self._find(request, identity, key)
        except FileNotFoundError:
            requested = self._find_again(request, identity, key)
        asset = requested.asset
        delivery = requested.delivery
        # A shared cache must not show one caller what another one may read.
        cache_control = self._public_cache if identity.is_anonymous else self._private_cache
        _set_headers(response, asset, cache_control)
        if delivery is None:
            response.status = falcon.HTTP_304
            return
        filename = delivery.filename
        if name:
            # The name comes from the path: it must not smuggle control characters into a header.
            filename = clean_name(name)
        is_attachment = _is_truthy(request.params.get("download"))
        _set_disposition(response, delivery, filename, is_attachment=is_attachment)
        if self._sendfile and delivery.content.storage.folder is not None:
            self._send_by_proxy(response, delivery)
        else:
            _send(request, response, asset, delivery)

    def _find(
        self, request: Request, identity: Identity, key: str, *, from_primary: bool = False
    ) -> _RequestedAsset:
        accept = request.get_header("Accept") or ""
        asset = self._assets.asset(
            identity, key, request.params, accept=accept, from_primary=from_primary
        )
        if is_not_modified(request, asset.tag, asset.modified):
            return _RequestedAsset(asset, None)
        return _RequestedAsset(asset, self._assets.delivery(asset))

    def _find_again(self, request: Request, identity: Identity, key: str) -> _RequestedAsset:
        """Look a second time: the content may have been replaced after its row was read.

        A replica may still show the row as it was before.
        """
        try:
            return self._find(request, identity, key, from_primary=True)
        except FileNotFoundError:
            raise not_found("file") from None

    def _send_by_proxy(self, response: falcon.Response, delivery: AssetDelivery) -> None:
        """Let the proxy in front send the file; it handles ranges itself."""
        content = delivery.content
        if self._sendfile == "x-sendfile":
            response.set_header("X-Sendfile", f"{content.storage.folder}/{content.path}")
        else:
            response.set_header(
                # nginx decodes the path; the setting is the prefix of an internal location, with
                # one folder for each storage.
                "X-Accel-Redirect",
                f"{self._sendfile}/{content.storage.name}/{quote(content.path)}",
            )


def _set_headers(response: falcon.Response, asset: Asset, cache_control: str) -> None:
    vary = "Accept, Origin" if asset.transform.varies_by_client else "Origin"
    # In one call: each header by itself would take twice as long.
    response.set_headers(
        [
            ("etag", f'"{asset.tag}"'),
            ("last-modified", _http_date(asset.modified)),
            ("cache-control", cache_control),
            ("vary", vary),
            # Files come from anybody: a browser must neither guess their type nor run what is in
            # them.
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "default-src 'none'; sandbox"),
        ]
    )


def _set_disposition(
    response: falcon.Response, delivery: AssetDelivery, filename: str, *, is_attachment: bool
) -> None:
    response.content_type = delivery.media_type
    kind = "inline"
    if is_attachment or _ACTIVE_CONTENT.match(delivery.media_type):
        kind = "attachment"
    response.set_header("Content-Disposition", disposition(kind, filename))


@lru_cache(maxsize=1_000)
def disposition(kind: str, filename: str) -> str:
    """Return a Content-Disposition header for a file name (RFC 6266).

    The name is given in ASCII, and once more in UTF-8 where ASCII cannot express it.
    """
    # NFKD takes accents off their letters: `Ärger.pdf` becomes `Arger.pdf` for browsers that do not
    # know filename*.
    ascii_name = unicodedata.normalize("NFKD", filename).encode("ascii", "ignore").decode()
    ascii_name = _NOT_QUOTABLE.sub("_", ascii_name)
    # Nothing but an extension is left of a name in another script.
    if not ascii_name.partition(".")[0]:
        ascii_name = f"file{ascii_name}"
    header = f'{kind}; filename="{ascii_name}"'
    if ascii_name == filename:
        return header
    return f"{header}; filename*=UTF-8''{quote(filename, safe='')}"


def _send(
    request: Request, response: falcon.Response, asset: Asset, delivery: AssetDelivery
) -> None:
    content = delivery.content
    response.set_header("Accept-Ranges", "bytes")
    try:
        part = byte_range_of(request, asset.tag, asset.modified, size=content.size)
    except RangeNotSatisfiable:
        response.set_header("Content-Range", f"bytes */{content.size}")
        raise Refused(
            Problem("RANGE_NOT_SATISFIABLE", f"The content has {content.size} bytes.")
        ) from None
    start, length = part or (0, content.size)
    if part:
        # The range counts from 0, and names the last byte, not the one behind it.
        response.status = falcon.HTTP_206
        response.set_header("Content-Range", f"bytes {start}-{start + length - 1}/{content.size}")
    # Transformed images that were just made are in memory; originals are streamed from their
    # storage.
    if content.data is not None:
        response.data = content.data[start : start + length]
    elif request.sent_method == "HEAD":
        # Nothing is opened, because nothing is sent.
        response.content_length = length
    else:
        response.set_stream(content.chunks(start, length), length)


def _is_truthy(value: object) -> bool:
    # `?download` without a value counts as well.
    return value is not None and value not in ("false", "0")


@lru_cache(maxsize=1_000)
def _http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)
