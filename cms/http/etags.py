"""Answers to reads with their ETag, or 304 to a client that holds them already (decisions, section 5)."""

from __future__ import annotations

import falcon

from cms.etags import etag_of, matches_etag
from cms.items.read.reads import Answer


def send_with_etag(request: falcon.Request, response: falcon.Response, answer: Answer) -> None:
    """Answer one item, or a list."""
    tag = etag_of(answer.body, answer.version)
    response.set_header("ETag", tag)
    held = request.get_header("If-None-Match")
    if held is not None and matches_etag(held, tag):
        response.status = falcon.HTTP_304
    else:
        response.data = answer.body
