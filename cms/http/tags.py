"""Answers to reads with their ETag, or 304 to a client that holds them already (decisions, section 5)."""

from __future__ import annotations

import falcon

from cms.store.reads import Answer
from cms.tags import names_answer, tag_of


def send_one(request: falcon.Request, response: falcon.Response, found: Answer) -> None:
    """Answer one item."""
    _send(request, response, found.body, tag_of(found.body, found.version))


def send_body(request: falcon.Request, response: falcon.Response, body: bytes) -> None:
    """Answer a list."""
    _send(request, response, body, tag_of(body))


def _send(request: falcon.Request, response: falcon.Response, body: bytes, tag: str) -> None:
    response.set_header("ETag", tag)
    held = request.get_header("If-None-Match")
    if held is not None and names_answer(held, tag):
        response.status = falcon.HTTP_304
    else:
        response.data = body
