"""JSON bodies of requests, and their Idempotency-Keys."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256

import falcon
from falcon.media import BaseHandler
from falcon.typing import ReadableIO

from cms import jsontext
from cms.digits import TooManyDigits, too_many_digits
from cms.errors import (
    Problem,
    Refused,
    collect_problems,
    invalid_payload,
    invalid_query,
    no_object,
    refuse_unknown_members,
)
from cms.files.media_types import without_parameters
from cms.http.requests.request import Request
from cms.http.requests.request_body import body_too_large, read_limited
from cms.openapi.body_members import BODY_MEMBERS
from cms.processes.memory import note_memory_use
from cms.store.idempotency import Idempotency

MAX_KEY_LENGTH = 255
_MEMORY_PER_BODY_BYTE = 4
"""A body's values take at least this many times the memory of its text."""


NOT_JSON = Problem(
    "UNSUPPORTED_MEDIA_TYPE", "Send JSON with the header Content-Type: application/json."
)


class JsonHandler(BaseHandler):
    """Falcon's media handler for JSON: the only code that reads a JSON body, with its one limit."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def deserialize(
        self, stream: ReadableIO, content_type: str | None, content_length: int | None
    ) -> object:
        """Return the value of a body, None for an empty one; raises `Refused`.

        The codes are UNSUPPORTED_MEDIA_TYPE, CONTENT_TOO_LARGE and INVALID_PAYLOAD.
        """
        return _json_value(self.read(stream, content_length), content_type)

    def read(self, stream: ReadableIO, content_length: int | None) -> bytes:
        """Return the bytes of a body; raises `Refused` CONTENT_TOO_LARGE."""
        # An announced length is refused before a byte is read; a chunked body announces none, and
        # is counted.
        if (content_length or 0) > self._max_bytes:
            raise body_too_large(self._max_bytes)
        raw = read_limited(stream, self._max_bytes)
        note_memory_use(_MEMORY_PER_BODY_BYTE * len(raw))
        return raw


def _json_value(raw: bytes, content_type: str | None) -> object:
    # Before the media type: a request without a body needs no Content-Type.
    if not raw:
        return None
    if content_type != falcon.MEDIA_JSON and not is_json(content_type):
        raise Refused(NOT_JSON)
    try:
        return jsontext.loads(raw)
    except TooManyDigits as error:
        raise Refused(_digits_problem(error)) from None
    except ValueError as error:
        raise invalid_payload(f"The body is not usable JSON: {error}") from None


# Hashed while it is read, so that a large body is not gone through a second time.
class _HashedBody:
    """The body of a request, hashed while it is read."""

    def __init__(self, body: ReadableIO) -> None:
        self._body = body
        self._hash = sha256()

    def read(self, size: int | None = None, /) -> bytes:
        chunk = self._body.read(size)
        self._hash.update(chunk)
        return chunk

    def digest(self) -> bytes:
        return self._hash.digest()


def read_json(request: Request) -> object:
    """Return the value of a JSON body, None without a body; raises as `JsonHandler` does.

    Members that the route does not know are refused, where the table of its bodies names them; the
    bodies of items and structure are checked where they are parsed.
    """
    payload = _json_value(read_body(request), request.content_type)
    known = BODY_MEMBERS.get((request.uri_template or "", request.method))
    if known is not None and isinstance(payload, dict):
        refuse_unknown_members(payload, sorted(known))
    return payload


def read_body(request: Request) -> bytes:
    """Return the bytes of a body, which has the same limit as JSON."""
    # Not by `request.get_media`: that takes a chunked body for an empty one, and refuses other
    # media types before it looks at the size.
    handler = request.options.media_handlers[falcon.MEDIA_JSON]
    # Only a request with such a key is compared with later ones.
    assert isinstance(handler, JsonHandler)
    if "HTTP_IDEMPOTENCY_KEY" not in request.env:
        return handler.read(request.stream, request.content_length)
    body = _HashedBody(request.stream)
    raw = handler.read(body, request.content_length)
    request.digest = body.digest()
    return raw


def _digits_problem(error: TooManyDigits) -> Problem:
    """Return the problem of a number with too many digits.

    It names the index in an array of items, the field, and the path to the number.
    """
    path = list(error.path)
    extensions: dict[str, object] = {}
    if path and isinstance(path[0], int):
        extensions["index"] = path.pop(0)
    if path:
        extensions |= {"field": path[0], "path": path}
    return too_many_digits(error, **extensions)


def require_no_body(request: Request) -> None:
    """Raise `Refused` INVALID_PAYLOAD for a body of a call that takes none.

    An empty object counts as none: many clients send one.
    """
    payload = read_json(request)
    if isinstance(payload, dict):
        refuse_unknown_members(payload, ())
    elif payload is not None:
        raise invalid_payload("The call takes no body")


_SELECTING = frozenset({"filter", "search"})
_COUNTING = frozenset({"limit", "offset", "page", "sort"})


def read_selection(request: Request) -> object:
    """Return the body of a call that changes or deletes the rows that its body selects.

    Raises `Refused` INVALID_QUERY for parameters that would select rows in a query string, where
    nobody looks at them.
    """
    # The query string of a change shapes its answer.
    refused = _SELECTING if request.method == "PATCH" else _SELECTING | _COUNTING
    for parameter in request.params:
        name = parameter.partition("[")[0]
        if name in refused:
            reason = f'"{name}" belongs into "query" of the body'
            raise invalid_query(reason, parameter=name)
    return read_json(request)


def read_json_object(request: Request) -> Mapping[str, object]:
    """Return the body as an object; raises `Refused` INVALID_PAYLOAD for anything else."""
    payload = read_json(request)
    if not isinstance(payload, dict):
        raise no_object()
    return payload


def required_text(payload: Mapping[str, object], key: str) -> str:
    """Return a text that must be there; raises `Refused` INVALID_PAYLOAD."""
    text = payload.get(key)
    if not isinstance(text, str) or not text:
        raise invalid_payload(f'"{key}" must be a text', field=key)
    return text


def check_texts(
    payload: Mapping[str, object], *required: str, optional: Sequence[str] = ()
) -> None:
    """Raise one `Refused` that names every key of a body that should be a text and is not."""
    problems: list[Problem] = []
    for key in required:
        collect_problems(problems, partial(required_text, payload, key))
    for key in optional:
        collect_problems(problems, partial(optional_text, payload, key))
    if problems:
        raise Refused(problems)


def optional_text(payload: Mapping[str, object], key: str) -> str | None:
    """Return a text that may be left out; raises `Refused` INVALID_PAYLOAD for anything else."""
    if payload.get(key) is None:
        return None
    return required_text(payload, key)


def idempotency_key_of(request: Request) -> Idempotency | None:
    """Return the Idempotency-Key of a request; call it after the body was read.

    Raises `Refused` INVALID_QUERY for a key that is empty or too long.
    """
    key = request.env.get("HTTP_IDEMPOTENCY_KEY")
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise invalid_query(
            f"The header Idempotency-Key takes 1 to {MAX_KEY_LENGTH} characters",
            header="Idempotency-Key",
        )
    target = (request.method, request.root_path + request.path, request.query_string)
    # A separator, so that the path `/ab` is not the path `/a` with the query `b`.
    content = b"\0".join((*(part.encode() for part in target), request.digest))
    # Keyed, because the digest is stored and the body may hold a password.
    seal = request.authenticator.seal if request.authenticator else b""
    fingerprint = hmac.digest(seal, content, "sha256").hex()
    return Idempotency(sha256(key.encode()).hexdigest(), fingerprint)


def is_json(content_type: str | None) -> bool:
    """Tell whether a body is JSON, by its media type."""
    media_type = without_parameters(content_type)
    return media_type == falcon.MEDIA_JSON or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
