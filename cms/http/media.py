"""Bodies in and answers out."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256

import falcon

from cms import jsontext
from cms.digits import TooManyDigits, too_many_digits
from cms.errors import Problem, Refused, collect_problems, invalid_payload, invalid_query
from cms.memory import note_memory_use
from cms.store.idempotency import Idempotency

MAX_KEY_LENGTH = 255
_MEMORY_PER_BODY_BYTE = 4
"""How many times the room of a body its values take at least."""


def read_json(request: falcon.Request, *, max_bytes: int) -> object:
    """Return the JSON body; raises `Refused` for a wrong type, size or text. No body at all is null."""
    raw = _read_body(request, max_bytes)
    if request.get_header("Idempotency-Key") is not None:
        request.context.digest = sha256(raw).digest()
    if raw and not _is_json(request.content_type):
        raise Refused(
            Problem(
                "UNSUPPORTED_MEDIA_TYPE",
                "Send JSON with the header Content-Type: application/json.",
            )
        )
    try:
        return jsontext.loads(raw) if raw else None
    except TooManyDigits as error:
        raise Refused(_digits_problem(error)) from None
    except ValueError as error:
        raise invalid_payload(f"The body is not usable JSON: {error}") from None


def _digits_problem(error: TooManyDigits) -> Problem:
    """Return the problem of a number in a body: the place in an array of several, the field, and the path there."""
    path = list(error.path)
    place: dict[str, object] = {}
    if path and isinstance(path[0], int):
        place["index"] = path.pop(0)
    if path:
        place |= {"field": path[0], "path": path}
    return too_many_digits(error, **place)


def read_json_object(request: falcon.Request, *, max_bytes: int) -> Mapping[str, object]:
    """Return the body as an object; raises `Refused` INVALID_PAYLOAD for anything else."""
    found = read_json(request, max_bytes=max_bytes)
    if not isinstance(found, dict):
        raise invalid_payload("The body must be an object")
    return found


def required_text(payload: Mapping[str, object], key: str) -> str:
    """Return a text that must be there; raises `Refused` INVALID_PAYLOAD."""
    found = payload.get(key)
    if not isinstance(found, str) or not found:
        raise invalid_payload(f'"{key}" must be a text', field=key)
    return found


def check_texts(payload: Mapping[str, object], *needed: str, optional: Sequence[str] = ()) -> None:
    """Refuse every key of a body that is no text, before the first of them is read."""
    problems: list[Problem] = []
    for key in needed:
        collect_problems(problems, partial(required_text, payload, key))
    for key in optional:
        collect_problems(problems, partial(optional_text, payload, key))
    if problems:
        raise Refused(problems)


def optional_text(payload: Mapping[str, object], key: str) -> str | None:
    """Return a text that may be left out; raises `Refused` INVALID_PAYLOAD for anything else."""
    return None if payload.get(key) is None else required_text(payload, key)


def idempotency_key_of(request: falcon.Request) -> Idempotency | None:
    """Return what an Idempotency-Key asks for, after the body was read; raises `Refused` for a key that is none."""
    key = request.get_header("Idempotency-Key")
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise invalid_query(
            f"The header Idempotency-Key takes 1 to {MAX_KEY_LENGTH} characters",
            header="Idempotency-Key",
        )
    target = (request.method, request.root_path + request.path, request.query_string)
    asked = b"\0".join((*(part.encode() for part in target), request.context.digest))
    return Idempotency(
        sha256(key.encode()).hexdigest(), hmac.digest(request.context.seal, asked, "sha256").hex()
    )


def send(response: falcon.Response, data: object) -> None:
    """Answer `{"data": …}`."""
    response.data = jsontext.dumps({"data": data})


def send_written(response: falcon.Response, found: bytes | None) -> None:
    """Answer what was written, or 204 to a caller that may write but not read it."""
    if found is None:
        response.status = falcon.HTTP_204
    else:
        response.data = found


def _read_body(request: falcon.Request, max_bytes: int) -> bytes:
    if (request.content_length or 0) > max_bytes:
        raise _body_too_large(max_bytes)
    raw = bytearray()
    while piece := request.stream.read(max_bytes + 1 - len(raw)):
        raw += piece
        if len(raw) > max_bytes:
            raise _body_too_large(max_bytes)
    note_memory_use(_MEMORY_PER_BODY_BYTE * len(raw))
    return bytes(raw)


def _body_too_large(max_bytes: int) -> Refused:
    return Refused(
        Problem(
            "CONTENT_TOO_LARGE", f"The body is larger than {max_bytes} bytes.", {"limit": max_bytes}
        )
    )


def _is_json(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == falcon.MEDIA_JSON or (kind.startswith("application/") and kind.endswith("+json"))
