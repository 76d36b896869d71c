"""JSON bodies: one handler reads them all, within one limit."""

from __future__ import annotations

import io

import pytest

from cms.errors import Refused
from cms.http.requests.media import JsonHandler

HANDLER = JsonHandler(max_bytes=10)
JSON = "application/json"


class Trickle:
    """A stream that gives one byte at a time, as a slow client does."""

    def __init__(self, content: bytes) -> None:
        self._stream = io.BytesIO(content)

    def read(self, size: int | None = None, /) -> bytes:
        return self._stream.read(min(size or 1, 1))


def refusal(content: bytes, content_type: str | None = JSON, length: int | None = None) -> str:
    with pytest.raises(Refused) as refused:
        HANDLER.deserialize(io.BytesIO(content), content_type, length)
    return refused.value.problems[0].code


@pytest.mark.parametrize(
    "content_type", [JSON, "Application/JSON; charset=utf-8", "application/geo+json"]
)
def test_a_body_is_read_whole_however_it_comes(content_type: str) -> None:
    for stream in (io.BytesIO(b'{"a": 123}'), Trickle(b'{"a": 123}')):
        assert HANDLER.deserialize(stream, content_type, None) == {"a": 123}


@pytest.mark.parametrize("content_type", [JSON, "text/plain", None])
def test_without_a_body_there_is_no_value_whatever_type_it_has(content_type: str | None) -> None:
    assert HANDLER.deserialize(io.BytesIO(b""), content_type, 0) is None


def test_a_body_beyond_the_limit_is_refused_by_its_announced_and_by_its_real_length() -> None:
    assert HANDLER.deserialize(io.BytesIO(b"1" * 10), JSON, 10) == 1111111111
    assert refusal(b"1" * 11) == "CONTENT_TOO_LARGE"
    assert refusal(b"", length=11) == "CONTENT_TOO_LARGE"
    assert refusal(b"1" * 11, "text/plain") == "CONTENT_TOO_LARGE"


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "text/json", "json"])
def test_other_types_are_refused(content_type: str | None) -> None:
    assert refusal(b"{}", content_type) == "UNSUPPORTED_MEDIA_TYPE"


@pytest.mark.parametrize("content", [b"{", b"NaN", b"\xff", b"{} {}"])
def test_what_is_no_json_is_refused(content: bytes) -> None:
    assert refusal(content) == "INVALID_PAYLOAD"
