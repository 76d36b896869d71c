"""Conditional and partial requests for a content of ten bytes, without a file."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from falcon import testing

from cms.http.answers.conditional_requests import (
    ByteRange,
    RangeNotSatisfiable,
    byte_range_of,
    is_not_modified,
)
from cms.http.requests.request import Request

TAG = "tag"
MODIFIED = datetime(2024, 2, 29, 12, 0, 0, 500_000, tzinfo=UTC)
AT_THAT_SECOND = "Thu, 29 Feb 2024 12:00:00 GMT"
A_SECOND_BEFORE = "Thu, 29 Feb 2024 11:59:59 GMT"


def request(method: str = "GET", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(testing.create_environ(method=method, headers=named))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-4", ByteRange(0, 5)),
        ("bytes=5-", ByteRange(5, 5)),
        ("bytes=5-99", ByteRange(5, 5)),
        ("bytes=-3", ByteRange(7, 3)),
        ("bytes=-99", ByteRange(0, 10)),
        (" Bytes = 0 - 0 ", ByteRange(0, 1)),
        ("bytes=4-3", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("bytes=٣-4", None),
        ("bytes=" + "9" * 19 + "-", None),
        ("lines=0-1", None),
        ("", None),
    ],
)
def test_a_range_is_cut_to_the_content_or_ignored(header: str, expected: ByteRange | None) -> None:
    assert byte_range_of(request(Range=header), TAG, MODIFIED, size=10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_a_range_behind_the_end_is_not_satisfiable(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        byte_range_of(request(Range=header), TAG, MODIFIED, size=10)


def test_only_a_get_of_the_same_version_gets_a_part() -> None:
    assert byte_range_of(request("HEAD", Range="bytes=0-1"), TAG, MODIFIED, size=10) is None
    same = request(Range="bytes=0-1", If_Range=f'"{TAG}"')
    assert byte_range_of(same, TAG, MODIFIED, size=10) == ByteRange(0, 2)
    other = request(Range="bytes=0-1", If_Range='"other"')
    assert byte_range_of(other, TAG, MODIFIED, size=10) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"If_None_Match": f'"{TAG}"'},
        {"If_None_Match": f'"x", W/"{TAG}"'},
        {"If_None_Match": "*"},
        {"If_Modified_Since": AT_THAT_SECOND},
    ],
)
def test_a_client_with_this_version_need_not_get_it_again(headers: dict[str, str]) -> None:
    assert is_not_modified(request(**headers), TAG, MODIFIED)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"If_None_Match": TAG},
        {"If_None_Match": '"x"', "If_Modified_Since": AT_THAT_SECOND},
        {"If_Modified_Since": A_SECOND_BEFORE},
        {"If_Modified_Since": "yesterday"},
    ],
)
def test_any_other_client_gets_the_content(headers: dict[str, str]) -> None:
    assert not is_not_modified(request(**headers), TAG, MODIFIED)
