"""Answers to reads with their ETag, or 304 for a client that already has them."""

from __future__ import annotations

import falcon

from cms.etags import etag_of, matches_etag
from cms.http.requests.request import Request
from cms.items.read.reads import ReadAnswer


def send_with_etag(request: Request, response: falcon.Response, answer: ReadAnswer) -> None:
    """Send one item or a list."""
    tag = etag_of(answer.body, answer.version)
    response.set_header("ETag", tag)
    client_tags = request.get_header("If-None-Match")
    if client_tags is not None and matches_etag(client_tags, tag):
        response.status = falcon.HTTP_304
    else:
        response.data = answer.body
