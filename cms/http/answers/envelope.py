"""Answers in the common form, `{"data": …}`."""

from __future__ import annotations

import falcon

from cms import jsontext


def send(response: falcon.Response, data: object) -> None:
    """Send `{"data": …}`."""
    response.data = jsontext.dumps({"data": data})


def send_written(response: falcon.Response, body: bytes | None) -> None:
    """Send the written items, or 204 to a caller who may not read them."""
    if body is None:
        response.status = falcon.HTTP_204
    else:
        response.data = body
