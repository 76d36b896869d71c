"""Headers of requests are looked up as Falcon looks them up."""

from __future__ import annotations

import falcon
import pytest
from falcon.testing import create_environ

from cms.http.requests.request import Request

NAMES = (
    "Accept",
    "accept",
    "Content-Type",
    "Content-Length",
    "X-Sent-Empty",
    "If-None-Match",
    "Origin",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_header_is_what_falcon_finds(name: str) -> None:
    sent = {"Accept": "image/webp", "Content-Type": "text/plain", "X-Sent-Empty": ""}
    environ = create_environ(headers=sent, body="four")
    request = Request(dict(environ))
    of_falcon = falcon.Request(dict(environ))
    assert request.get_header(name) == of_falcon.get_header(name)
    assert request.get_header(name, default="none") == of_falcon.get_header(name, default="none")


def test_a_required_header_that_is_missing_is_refused() -> None:
    request = Request(create_environ(headers={"Accept": "image/webp"}))
    assert request.get_header("Accept", required=True) == "image/webp"
    with pytest.raises(falcon.HTTPMissingHeader):
        request.get_header("Origin", required=True)
