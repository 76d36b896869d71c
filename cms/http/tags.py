"""Answers to reads with their ETag, or 304 to a client that holds them already (decisions, section 5)."""

from __future__ import annotations

import falcon

from cms.store.reads import Answer
from cms.tags import names_answer, tag_of


def send_one(request: falcon.Request, response: falcon.Response, answer: Answer) -> None:
    """Answer one item, or a list."""
    tag = tag_of(answer.body, answer.version)
    response.set_header("ETag", tag)
    held = request.get_header("If-None-Match")
    if held is not None and names_answer(held, tag):
        response.status = falcon.HTTP_304
    else:
        response.data = answer.body
