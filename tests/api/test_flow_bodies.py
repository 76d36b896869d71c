"""Webhooks take the bodies that other services send: forms, texts and XML."""

from __future__ import annotations

import pytest

from tests.active_flows import make_flow
from tests.client import Client
from tests.files.forms import BOUNDARY, form

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = f'multipart/form-data; boundary="{BOUNDARY}"'


@pytest.fixture(scope="module")
def flow(admin: Client) -> str:
    return make_flow(admin, "webhook", {"method": "POST", "return": "{{$trigger.body}}"}, [])


@pytest.mark.parametrize(
    ("media", "raw", "body"),
    [
        (URLENCODED, b"a=1&b=x+y%26z&a=2&c=", {"a": ["1", "2"], "b": "x y&z", "c": ""}),
        (f"{URLENCODED}; charset=UTF-8", b"text=%C3%A9", {"text": "é"}),
        (MULTIPART, form(("a", "1"), ("b", "é"), ("a", "2")), {"a": ["1", "2"], "b": "é"}),
        ("text/plain", '{"é": 1}'.encode(), '{"é": 1}'),
        ("text/plain; charset=ISO-8859-1", "é".encode("latin-1"), "é"),
        ("text/xml", b"<a>1</a>", "<a>1</a>"),
        ("application/xml; charset=utf-8", b"<a/>", "<a/>"),
        ("application/atom+xml", b"<feed/>", "<feed/>"),
        ("application/vnd.api+json", b'{"a": 1}', {"a": 1}),
        ("text/plain", b"", None),
        ("image/png", b"", None),
    ],
)
def test_a_body_is_an_object_or_a_text(
    admin: Client, flow: str, media: str, raw: bytes, body: object
) -> None:
    answer = admin.send("POST", f"/flows/trigger/{flow}", raw=raw, **{"Content-Type": media})
    assert (answer.status, answer.data) == (200, body), answer.text


@pytest.mark.parametrize(
    ("media", "raw", "status"),
    [
        ("image/png", b"x", 415),
        ("application/octet-stream", b"x", 415),
        (URLENCODED, "a=é".encode(), 400),
        (URLENCODED, b"a=%ff", 400),
        (URLENCODED, b"a=%00", 400),
        (URLENCODED, b"&".join([b"a=1"] * 1001), 400),
        (MULTIPART, b"no form", 400),
        (MULTIPART, form(("file", "some text", "a.txt")), 400),
        ("multipart/form-data", b"x", 400),
        ("text/plain", b"\xff", 400),
        ("text/plain", b"a\0b", 400),
        ("text/plain; charset=zip", b"x", 400),
        ("text/plain", b"x" * (2**20 + 1), 413),
        (URLENCODED, b"a=" + b"x" * 2**20, 413),
        (MULTIPART, form(("a", "x" * 2**20)), 413),
    ],
)
def test_a_body_that_cannot_be_used_is_refused(
    admin: Client, flow: str, media: str, raw: bytes, status: int
) -> None:
    answer = admin.send("POST", f"/flows/trigger/{flow}", raw=raw, **{"Content-Type": media})
    assert answer.status == status, answer.text


def test_fields_of_a_form_stand_beside_the_request_and_count_for_its_key(
    admin: Client, flow: str
) -> None:
    named = make_flow(admin, "webhook", {"method": "POST", "return": "{{$trigger.name}}"}, [])
    headers = {"Content-Type": URLENCODED, "Idempotency-Key": "a form"}
    path = f"/flows/trigger/{named}"
    assert admin.send("POST", path, raw=b"name=Ada", **headers).data == "Ada"
    assert admin.send("POST", path, raw=b"name=Ada", **headers).data == "Ada"
    assert admin.send("POST", path, raw=b"name=Bob", **headers).status == 422
