"""What logs of runs do not hold, and what it costs to find it."""

from __future__ import annotations

import base64
import json
import sys
from types import FrameType
from typing import Any

import pytest

from cms.flows.redaction import (
    MAX_SECRETS,
    MAX_SECRETS_LENGTH,
    MAX_TEXT_LENGTH,
    Secrets,
)
from cms.flows.secret_texts import _is_secret_name
from cms.text_shapes import MASK

SECRET = "hunter2-correct-horse"


def masked(value: object, *others: object) -> Any:
    """Return a value as the log of a run shows it that has seen all of these."""
    secrets = Secrets()
    for seen in (value, *others):
        secrets.collect(seen)
    return secrets.masked(value)


BASIC = base64.b64encode(f"ada:{SECRET}".encode()).decode()
SOURCES = {
    "a name": {"password": SECRET},
    "a name of several words": {"X-Api-Key": SECRET},
    "all that is under a name": {"credentials": {"of": [{"whom": SECRET}]}},
    "a header": {"headers": {"Authorization": f"Bearer {SECRET}"}},
    "a header of a list": {"headers": [{"header": "Authorization", "value": f"Bearer {SECRET}"}]},
    "a named value": [{"name": "api_token", "value": SECRET}],
    "basic credentials": {"authorization": f"Basic {BASIC}"},
    "basic credentials in a text": f"sent Basic {BASIC}",
    "a cookie": {"cookie": f"theme=dark; session={SECRET}"},
    "the user of a URL": {"url": f"https://{SECRET}@example.com/"},
    "the password of a URL": {"url": f"postgres://ada:{SECRET}@example.com/db"},
    "the query of a URL": {"url": f"https://example.com/?a=1&key={SECRET}"},
    "a signature in a URL": {"url": f"https://example.com/?X-Amz-Signature={SECRET}"},
    "a query": {"query": {"key": SECRET}},
    "a JSON text": {"body": json.dumps({"a": [{"client_secret": SECRET}]})},
    "JSON in a JSON text": {"body": json.dumps({"body": json.dumps({"token": SECRET})})},
    "a JSON text as a name": {json.dumps({"token": SECRET}): 1},
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_secret_is_masked_where_it_stands_and_wherever_it_appears(source: object) -> None:
    assert SECRET not in json.dumps(masked(source))
    elsewhere = {
        "message": f"it was {SECRET}!",
        f"{SECRET}": "as a name",
        "list": ["a", f"x{SECRET}y"],
    }
    text = json.dumps(masked(elsewhere, source))
    assert SECRET not in text
    assert "it was" in text
    assert "as a name" in text


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f"the password: {SECRET}.",
        f'cut off: {{"password": "{SECRET} and mor',
        f'in a text: "body": "{{\\"password\\": \\"{SECRET}\\"}}"',
        f"'api_key' = '{SECRET}'",
        f"cannot reach https://ada:{SECRET}@example.com/x",
        f"GET /x?access_token={SECRET}&b=1 failed",
        f"Authorization: Bearer {SECRET}",
        f"it said bearer {SECRET}",
    ],
)
def test_secrets_are_recognised_by_the_form_of_a_text(text: str) -> None:
    assert SECRET not in masked(text)
    assert MASK in masked(text)


@pytest.mark.parametrize(
    ("secret", "appears"),
    [
        ("a b&c/d", "https://example.com/a%20b%26c%2Fd"),
        ('say "friend"', 'the text {\\"x\\": \\"say \\"friend\\"\\"'),
        ("  padded  ", "[padded]"),
        ("12345678", 12345678),
        (12345678, "pin 12345678"),
        ("abcdef", "xabcdefx"),
        ("a.c(d", "is a.c(d"),
        ("überraschung", "eine überraschung!"),
    ],
)
def test_a_secret_is_known_as_others_write_it(secret: object, appears: object) -> None:
    logged = masked({"value": appears}, {"secret": secret})["value"]
    assert MASK in logged
    assert str(secret).strip() not in logged


def test_of_secrets_that_overlap_the_longest_is_masked() -> None:
    secrets = {"token": "abcd", "password": "abcdefgh"}
    assert masked(["abcdefgh abcd"], secrets) == [f"{MASK} {MASK}"]


@pytest.mark.parametrize(
    "value",
    [
        "A title: with colons, and 5 = 5",
        {"count": 5, "flag": True, "none": None, "text": "https://example.com/?page=2"},
        '{"written":  "oddly" }',
        {"password": None},
        {"query": {"filter": {"id": 1}}, "key": "home"},
        "Basic training",
    ],
)
def test_what_is_no_secret_stays_as_it_is(value: object) -> None:
    assert masked(value) == value


def test_names_of_concealed_fields_are_secrets_of_a_run() -> None:
    secrets = Secrets({"pin"})
    value = {"payload": {"pin": "1234", "nested": [{"pin": 5}]}, "other": "is 1234"}
    secrets.collect(value)
    logged = {"payload": {"pin": MASK, "nested": [{"pin": MASK}]}, "other": f"is {MASK}"}
    assert secrets.masked(value) == logged


def test_a_short_text_is_masked_under_its_name_only() -> None:
    assert masked({"pin_token": "123", "n": "1234"}) == {"pin_token": MASK, "n": "1234"}


def test_names_that_look_alike_without_their_secrets_are_all_kept() -> None:
    logged = masked({"aaaa": 1, "bbbb": 2}, {"tokens": ["aaaa", "bbbb"]})
    assert sorted(logged.values()) == [1, 2]


def test_a_long_text_is_cut_behind_its_secrets() -> None:
    for start in (MAX_TEXT_LENGTH - 5, MAX_TEXT_LENGTH + 5):
        logged = masked({"a": "x" * start + SECRET + "x" * 100}, {"token": SECRET})["a"]
        assert SECRET[:6] not in logged
        assert len(logged) <= MAX_TEXT_LENGTH + 2


def test_deep_values_end() -> None:
    deep: object = SECRET
    for _ in range(5000):
        deep = {"a": [deep]}
    assert SECRET not in json.dumps(masked(deep))
    nested = "[" * 900 + "]" * 900
    assert len(json.dumps(masked({"body": nested}))) < 10_000


# With too many secrets a log shows nothing, instead of some of them.


@pytest.mark.parametrize(
    "source",
    [
        {f"token{number}": f"value {number} {SECRET}" for number in range(MAX_SECRETS + 1)},
        {"tokens": [f"{number} " * 50 for number in range(150)]},
        {"token": "x" * (MAX_SECRETS_LENGTH + 1)},
    ],
)
def test_too_many_secrets_leave_nothing(source: dict[str, object]) -> None:
    secrets = Secrets()
    secrets.collect(source)
    assert secrets.masked({"a": f"value 250 {SECRET}"}) == MASK
    assert secrets.masked([1]) == MASK
    assert secrets.masked(None) is None


def calls_of(size: int) -> int:
    """Return how many functions are called for a log of a value of a size."""
    _is_secret_name.cache_clear()
    value = {
        **{f"token{number}": f"secret {number}" for number in range(size)},
        "texts": [f"text {number}: a?key={number}0000 b=c" for number in range(size)],
        "json": json.dumps([{"password": f"p {number}"} for number in range(size)]),
    }
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        masked(value)
    finally:
        sys.setprofile(None)
    return count


def test_the_work_grows_with_the_value_and_not_with_its_secrets() -> None:
    below = calls_of(20)
    assert calls_of(40) < 2.3 * below
    assert calls_of(4000) < 2.3 * calls_of(2000)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "text", ["a" * 10, "?", "&a", "password:", "?key=x", "://a@", '\\"', "a='", "Basic "]
)
def test_no_text_takes_more_than_linear_time(text: str) -> None:
    """A minute of time is what a quadratic pattern needs at this size."""
    long = text * (1_000_000 // len(text))
    assert len(masked([long])) in (1, len(MASK))
