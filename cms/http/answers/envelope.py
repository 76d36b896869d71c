"""Answers in the common form, `{"data": …}`."""

from __future__ import annotations

import falcon

from cms import jsontext
from cms.etags import etag_of, matches_etag
from cms.http.requests.request import Request
from cms.items.read.answers import json_body
from cms.items.read.reads import ReadAnswer
from cms.store.store import Store


def send(response: falcon.Response, data: object) -> None:
    """Send `{"data": …}`."""
    response.data = jsontext.dumps({"data": data})


def send_written(response: falcon.Response, body: bytes | None) -> None:
    """Send the written items, or 204 to a caller who may not read them."""
    if body is None:
        response.status = falcon.HTTP_204
    else:
        response.data = body


def send_with_etag(
    store: Store, request: Request, response: falcon.Response, answer: ReadAnswer
) -> None:
    """Send one item or a list; raises `Refused` INVALID_QUERY for an answer that is too large."""
    body = json_body(answer.content, store.max_answer_size)
    tag = etag_of(body, answer.version)
    response.set_header("ETag", tag)
    client_tags = request.env.get("HTTP_IF_NONE_MATCH")
    if client_tags is not None and matches_etag(client_tags, tag):
        response.status = falcon.HTTP_304
    else:
        response.data = body


def send_without_etag(store: Store, response: falcon.Response, answer: ReadAnswer) -> None:
    """Send the answer of a SEARCH: caches compare addresses, and its parameters are in the body."""
    response.data = json_body(answer.content, store.max_answer_size)
