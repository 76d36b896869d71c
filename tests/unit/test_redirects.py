"""Where a browser may go once an external login is over."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cms.config.providers import Provider
from cms.errors import Refused
from cms.sso.browser_login import checked_redirect, with_reason

ALLOWED = (
    "https://app.example.com/signed-in",
    "https://[2001:db8::1]:8443/",
    "http://localhost:3000",
)
PROVIDER = Provider("openid", redirect_allow_list=ALLOWED)


def is_allowed(redirect: str) -> bool:
    try:
        return checked_redirect(PROVIDER, redirect) == redirect
    except Refused:
        return False


@pytest.mark.parametrize(
    "redirect",
    [
        "https://app.example.com/signed-in",
        "https://app.example.com:443/signed-in",
        "https://app.example.com/signed-in?tab=1&next=//evil.test",
        "https://APP.Example.com/signed-in",
        "HTTPS://app.example.com/signed-in",
        "https://[2001:db8::1]:8443/",
        "https://[2001:DB8::1]:8443",
        "http://localhost:3000/",
        "http://localhost:3000?a=b",
    ],
)
def test_allowed(redirect: str) -> None:
    assert is_allowed(redirect)


@pytest.mark.parametrize(
    "redirect",
    [
        "",
        "/",
        "/signed-in",
        "signed-in",
        "?",
        "//app.example.com/signed-in",
        "///app.example.com/signed-in",
        "https:app.example.com/signed-in",
        "https:/app.example.com/signed-in",
        "https:///app.example.com/signed-in",
        "https:\\\\app.example.com\\signed-in",
        "https://app.example.com\\signed-in",
        "https://evil.test\\@app.example.com/signed-in",
        "https://app.example.com\\.evil.test/signed-in",
        "https://evil.test/signed-in",
        "https://app.example.com.evil.test/signed-in",
        "https://evil.test/https://app.example.com/signed-in",
        "https://evil.test?https://app.example.com/signed-in",
        "https://evil.test#https://app.example.com/signed-in",
        "https://app.example.com@evil.test/signed-in",
        "https://user@app.example.com/signed-in",
        "https://user:password@app.example.com/signed-in",
        "https://@app.example.com/signed-in",
        "https://app.example.com%40evil.test/signed-in",
        "https://app.example.com%2fevil.test/signed-in",
        "https://app%2Eexample.com/signed-in",
        "http://app.example.com/signed-in",
        "javascript://app.example.com/signed-in",
        "javascript:alert(1)//https://app.example.com/signed-in",
        "data:text/html,x",
        "ftp://app.example.com/signed-in",
        "https://app.example.com:444/signed-in",
        "https://app.example.com:80/signed-in",
        "https://app.example.com:99999/signed-in",
        "https://app.example.com:-1/signed-in",
        "https://app.example.com:x/signed-in",
        "https://app.example.com:0/signed-in",
        "https://app.example.com./signed-in",
        "https://app.example.com/",
        "https://app.example.com",
        "https://app.example.com/Signed-in",
        "https://app.example.com/signed-in/..",
        "https://app.example.com/signed-in/x",
        "https://app.example.com/x/../signed-in",
        "https://app.example.com/./signed-in",
        "https://app.example.com//signed-in",
        "https://app.example.com/signed%2Din",
        "https://app.example.com/signed-in%00",
        "https://app.example.com/signed-in;x",
        "https://app.example.com/signed-in#code",
        "https://app.example.com/signed-in?a#b",
        " https://app.example.com/signed-in",
        "https://app.example.com/signed-in ",
        "\thttps://app.example.com/signed-in",
        "https://app.example.com/signed-in\r\nSet-Cookie: a=b",
        "https://app.example.com/signed-in?\r\nSet-Cookie: a=b",
        "https://app.exa\nmple.com/signed-in",
        "https://app.example.com/signed-in\0",
        "https://app.example.com/signed-in\x7f",
        "https://app.example.com/signed-in\x85",
        "https://app.example.com/signed-in?\u2028",
        "https://\uff41pp.example.com/signed-in",
        "https://app\u3002example.com/signed-in",
        "https://app\u00adexample.com/signed-in",
        "https://xn--app.example.com/signed-in",
        "https://[2001:db8::1]/",
        "https://[2001:db8:0:0:0:0:0:1]:8443/",
        "https://[::ffff:127.0.0.1]:8443/",
        "https://[2001:db8::1%25eth0]:8443/",
        "https://[2001:db8::1]evil.test:8443/",
        "https://[2001:db8::1:8443/",
        "https://2001:db8::1:8443/",
        "http://127.0.0.1:3000",
        "http://127.1:3000",
        "http://localhost:3000/x",
        "http://localhost:03001",
    ],
)
def test_refused(redirect: str) -> None:
    assert not is_allowed(redirect)


def test_very_long_ones_are_refused_or_taken_in_a_moment() -> None:
    assert not is_allowed("https://app.example.com/" + "a" * 1_000_000)
    assert not is_allowed("https://" + "a." * 500_000 + "/signed-in")
    # It has to fit into the cookie of the login.
    assert not is_allowed("https://app.example.com/signed-in?" + "a" * 1_000_000)


def test_without_a_list_nothing_is_allowed_and_nothing_is_asked_for() -> None:
    provider = Provider("openid")
    assert checked_redirect(provider, None) is None
    with pytest.raises(Refused) as refused:
        checked_redirect(provider, "https://app.example.com/signed-in")
    assert refused.value.problems[0].code == "INVALID_QUERY"


PIECES = st.sampled_from(
    [
        "https://",
        "http://",
        "//",
        "/",
        "\\",
        "@",
        ":",
        ".",
        "%2f",
        "%40",
        "#",
        "?",
        "app.example.com",
        "evil.test",
        "signed-in",
        ":443",
        "\t",
        "\n",
        "\0",
        "\u3002",
        "[::1]",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40))
@example("https://app.example.com/signed-in?https://evil.test")
def test_what_is_allowed_begins_with_an_address_of_the_list(redirect: str) -> None:
    if is_allowed(redirect):
        before_query = redirect.partition("?")[0].lower()
        origins = {
            "https://app.example.com",
            "https://app.example.com:443",
            "http://localhost:3000",
        }
        parts = urlsplit(before_query)
        assert f"{parts.scheme}://{parts.netloc}" in origins
        assert parts.path.rstrip("/") in ("/signed-in", "")


@pytest.mark.parametrize(
    ("redirect", "address"),
    [
        ("https://a.test/x", "https://a.test/x?reason=INVALID_OTP"),
        ("https://a.test/x?tab=1", "https://a.test/x?tab=1&reason=INVALID_OTP"),
        ("https://a.test/x?", "https://a.test/x?&reason=INVALID_OTP"),
    ],
)
def test_the_reason_is_added_to_the_query(redirect: str, address: str) -> None:
    assert with_reason(redirect, "INVALID_OTP") == address
