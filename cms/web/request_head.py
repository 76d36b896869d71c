"""The head of a request, and the environ of PEP 3333 that is made of it."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote_to_bytes

import httptools

Environ = dict[str, object]

_VERSIONS = frozenset({"1.0", "1.1"})
_SINGLE = frozenset({"HTTP_HOST", "CONTENT_TYPE"})  # repeated, they could mean either value
_HEADER_BYTES = 32  # counted for each header, as in RFC 9113, section 6.5.2
_MAX_KNOWN_NAME = 64
_UNPREFIXED = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})


class RequestHead:
    """The head of one request, as the parser reports its parts.

    `size` counts the bytes of names and values, and 32 for each header; `received` counts the bytes
    that arrived after the first part.
    """

    __slots__ = ("environ", "received", "size", "target")

    def __init__(self, environ: Environ) -> None:
        self.environ = environ
        self.target = b""
        self.size = 0
        self.received = 0

    def add_target(self, part: bytes) -> None:
        """Add a part of the request target."""
        self.target += part
        self.size += len(part)

    def add_header(self, name: bytes, value: bytes) -> None:
        """Add a header; repeated ones are joined, and a name with "_" is left out.

        Raises ValueError for a second header that contradicts the first.
        """
        self.size += len(name) + len(value) + _HEADER_BYTES
        key = _environ_key(name)
        if key is None:
            return
        # The parser leaves the spaces behind a value, which do not belong to it.
        text = value.rstrip(b" \t").decode("latin-1")
        earlier_value = self.environ.get(key)
        if earlier_value is None:
            self.environ[key] = text
        elif key in _SINGLE:
            raise ValueError(f"{key} is there twice")
        else:
            # Lists are joined by a comma (RFC 9110, section 5.3), but cookies contain commas.
            separator = "; " if key == "HTTP_COOKIE" else ","
            self.environ[key] = f"{earlier_value}{separator}{text}"

    def complete(self, method: str, version: str) -> None:
        """Add the request line.

        Raises ValueError for another protocol, for a transfer coding other than chunks, and for a
        path outside this application.
        """
        if version not in _VERSIONS:
            raise ValueError(f"HTTP/{version} is not served")
        environ = self.environ
        coding = environ.get("HTTP_TRANSFER_ENCODING")
        if coding is not None and str(coding).lower() != "chunked":
            raise ValueError(f"the transfer coding {coding} is not understood")
        if coding is not None and version == "1.0":
            raise ValueError(
                "HTTP/1.0 has no chunks, and whoever has passed this on may have seen another body"
            )
        path, query = _path_and_query(self.target)
        environ["REQUEST_METHOD"] = method
        environ["SERVER_PROTOCOL"] = f"HTTP/{version}"
        environ["RAW_URI"] = self.target.decode("latin-1")
        environ["QUERY_STRING"] = query.decode("latin-1")
        environ["PATH_INFO"] = _without_prefix(str(environ["SCRIPT_NAME"]), _decoded(path))

    @property
    def content_length(self) -> int | None:
        """The announced size of the body in bytes, None where it is chunked, 0 without a body."""
        if "HTTP_TRANSFER_ENCODING" in self.environ:
            return None
        return int(str(self.environ.get("CONTENT_LENGTH") or 0))


def _environ_key(name: bytes) -> str | None:
    """Return the key of a header in the environ, None for one that is left out."""
    # Long names are not kept: a client that makes them up would fill the memory with them.
    return _known_key(name) if len(name) <= _MAX_KNOWN_NAME else _new_key(name)


def _new_key(name: bytes) -> str | None:
    if b"_" in name:
        return None  # X_Forwarded_For would become the same key as X-Forwarded-For
    key = name.decode("latin-1").upper().replace("-", "_")
    return key if key in _UNPREFIXED else f"HTTP_{key}"


# Clients send the same few names in every request.
_known_key = lru_cache(maxsize=1024)(_new_key)


def _path_and_query(target: bytes) -> tuple[bytes, bytes]:
    """Split a target of any form: a path, an absolute address (to proxies), or `*` (of OPTIONS)."""
    if not target.startswith(b"/") and target != b"*":
        address = httptools.parse_url(target)
        return address.path or b"/", address.query or b""
    path, _, query = target.partition(b"#")[0].partition(b"?")
    return path, query


def _decoded(path: bytes) -> str:
    raw = unquote_to_bytes(path) if b"%" in path else path
    return raw.decode("latin-1")


def _without_prefix(prefix: str, path: str) -> str:
    if not path.startswith(prefix):
        raise ValueError(f"the path is not below {prefix}")
    return path[len(prefix) :]
