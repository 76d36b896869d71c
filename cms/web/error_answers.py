"""Answers that the web server gives by itself, in the service's form (docs/errors.md)."""

from __future__ import annotations

from http import HTTPStatus

from cms import jsontext
from cms.errors import BODY_BREAKS_OFF, STATUS, UNEXPECTED_ERROR

RETRY_AFTER_SECONDS = 1


def refusal(code: str, message: str) -> bytes:
    """Return a complete answer that ends the connection; `code` is one of `STATUS`."""
    number = STATUS[code]
    body = jsontext.dumps({"errors": [{"message": message, "extensions": {"code": code}}]})
    retry_after = ""
    if number == HTTPStatus.SERVICE_UNAVAILABLE:
        retry_after = f"Retry-After: {RETRY_AFTER_SECONDS}\r\n"
    head = (
        f"HTTP/1.1 {number} {HTTPStatus(number).phrase}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{retry_after}"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


# Made once: a server that refuses because it has too much to do should not do more for it.


MALFORMED = refusal("INVALID_QUERY", "The request is not well-formed HTTP.")
BROKEN_BODY = refusal("INVALID_PAYLOAD", f"{BODY_BREAKS_OFF}.")
HEAD_TOO_LARGE = refusal("HEAD_TOO_LARGE", "The head of the request is larger than 64 KB.")
TOO_SLOW = refusal("REQUEST_TIMEOUT", "The request did not arrive in time.")
OVERLOADED = refusal(
    "SERVICE_UNAVAILABLE", "The server has more requests than it can answer. Try again."
)
INTERNAL_ERROR = refusal("INTERNAL_SERVER_ERROR", UNEXPECTED_ERROR)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
