"""E-mail addresses: which are accepted, and how headers and the mail server get them."""

from __future__ import annotations

import pytest

from cms.emails import AddressParts, is_email, split_address
from cms.mail.mail_queue import address_spec, one_line, parse_address, sender


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("ada@example.com", "example.com"),
        ("ada+news@sub.example.com", "sub.example.com"),
        ("ada@bücher.example", "xn--bcher-kva.example"),
        ("ada@BÜCHER.example", "xn--bcher-kva.example"),
    ],
)
def test_the_domain_of_an_address_is_in_ascii(text: str, domain: str) -> None:
    local, _, _ = text.partition("@")
    assert split_address(text) == AddressParts(local, domain)


@pytest.mark.parametrize(
    "value",
    [
        "ada",
        "ada@",
        "@example.com",
        "ada@b@example.com",
        "ada lovelace@example.com",
        "ada@example.com\nbcc: eve@example.com",
        "ada@example.com,eve@example.com",
        '"ada"@example.com',
        "ada@[192.0.2.1]",
        "a" * 65 + "@example.com",
        "ada@ü" + "x" * 300 + ".example",
        7,
        None,
    ],
)
def test_what_mail_cannot_be_sent_to_is_no_address(value: object) -> None:
    assert not is_email(value)


@pytest.mark.parametrize(
    ("setting", "header"),
    [
        ("cms@example.com", "The Project <cms@example.com>"),
        ("Shop <cms@example.com>", "Shop <cms@example.com>"),
        ('"Shop, Inc." <cms@example.com>', '"Shop, Inc." <cms@example.com>'),
        ("<cms@example.com>", "The Project <cms@example.com>"),
        ("Two\r\nlines <cms@example.com>", "Two lines <cms@example.com>"),
    ],
)
def test_the_sender_has_the_name_of_the_setting_else_that_of_the_project(
    setting: str, header: str
) -> None:
    assert str(sender(setting, default_name="The Project")) == header


def test_the_mail_server_gets_an_address_without_a_name() -> None:
    assert address_spec(parse_address("ada@example.com", name="Ada")) == "ada@example.com"


@pytest.mark.parametrize("text", ["a\nb", "a\r\n b", " a\tb ", "a\x00b", "a\x85b"])
def test_a_text_for_a_header_is_one_line(text: str) -> None:
    assert one_line(text) == "a b"
