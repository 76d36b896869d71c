"""The first look at a value for secrets: what it lets pass holds none."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cms.flows.redaction import MAX_DEPTH, MAX_TEXT_LENGTH, Secrets
from cms.flows.secret_texts import may_hold_secrets
from cms.text_shapes import MASK

NAMES = frozenset({"pin", "größe"})
"""Names of fields that conceal their values, as a catalogue may have them."""

PIECES = st.sampled_from(
    [
        *("password", "PassWord", "pass-word", "pass_", "word", "secret", "Api", "Key", "api.key"),
        *("token", "otp", "pwd", "cookie", "authorization", "au", "th", "sig", "signature", "pin"),
        *("to\u212aen", "größe", "k%65y", "tok%65n", "pass\nword", "X-Amz-Signature", "query"),
        *(
            "https://",
            "ada:hunter22",
            "@example.com",
            "/?",
            "&",
            ";",
            "=",
            ":",
            " ",
            '"',
            "\\",
            "'",
        ),
        *("Basic ", "bearer ", "bearer\u00a0", "abcdefghijklmnop12345", "value", "name", "header"),
        *('{"', '": "', '"}', "[", "]", "harmless", "12345678", "ß", "\t"),
    ]
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
@example({"query": {"key": "abcd"}})
@example({"pass-word": "hunter22"})
@example([{"name": "api_token", "value": "abcd"}])
@example("https://example.com/?a&sig =abcd")
def test_a_value_that_passes_holds_no_secret_for_the_walk_either(value: object) -> None:
    if may_hold_secrets(value, NAMES):
        return
    secrets = Secrets(NAMES)
    secrets._collect(value, 0)
    assert not secrets._texts
    assert secrets._masked(value, 0) == value


@pytest.mark.parametrize(
    "value",
    [
        {"method": "GET", "query": {"n": "7"}, "headers": {"accept": "*/*", "host": "a:8000"}},
        {"title": "A 'quoted' title", "views": 5, "price": 1.5, "tags": ["a", None, True]},
        "2026-05-01T10:00:00.000Z",
    ],
)
def test_ordinary_values_pass(value: object) -> None:
    assert not may_hold_secrets(value, NAMES)


def test_what_passes_is_still_cut_and_no_deeper_than_a_log() -> None:
    deep: object = "end"
    for _ in range(MAX_DEPTH + 2):
        deep = [deep]
    assert MASK in str(Secrets().masked(deep))
    long_text = "x" * (MAX_TEXT_LENGTH + 1)
    assert Secrets().masked({"a": long_text}) == {"a": f"{'x' * MAX_TEXT_LENGTH} …"}
