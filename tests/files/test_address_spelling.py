"""Addresses as people write them: with spaces, and with letters of all scripts."""

from __future__ import annotations

import pytest

from cms.outgoing.outgoing_addresses import AddressDenied, parse_target, port_of
from tests.files.sources import Source
from tests.files.test_outgoing import get


@pytest.mark.parametrize(
    ("host", "ascii_host"),
    [
        ("bücher.example", "xn--bcher-kva.example"),
        ("STRASSE.example", "strasse.example"),
        ("straße.example:81", "xn--strae-oqa.example"),
        ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
    ],
)
def test_a_host_of_any_script_is_asked_by_its_name_in_ascii(host: str, ascii_host: str) -> None:
    target = parse_target(f"http://{host}/")
    assert target.hostname == ascii_host
    assert port_of(target) == (81 if ":" in host else 80)


@pytest.mark.parametrize(
    "url",
    [
        "http://a b/", "http://a\n.example/", "http://a\\b/", "http://\ud800/", "http://a/\ud800",
        "http://x:y@bücher.example/", "http://\u200d.example/", "http://a.example/\0",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(AddressDenied):
        parse_target(url)


def test_spaces_and_letters_of_all_scripts_are_encoded_as_browsers_do(
    other_server: Source,
) -> None:
    other_server.page("/my%20gr%C3%BCn%20100%.txt", b"hello")
    url = other_server.url("/my grün 100%.txt?q=a b&r=ü%20#part two")
    assert get(f" {url}\n")[1] == b"hello"
    assert other_server.seen[-1][1] == "/my%20gr%C3%BCn%20100%.txt?q=a%20b&r=%C3%BC%20"


@pytest.mark.parametrize("location", ["/to grün?q=a b", "/to%20gr%C3%BCn?q=a%20b"])
def test_a_redirect_to_spaces_and_letters_of_all_scripts_is_followed(
    other_server: Source, location: str
) -> None:
    other_server.page("/to%20gr%C3%BCn", b"there")
    # Servers send the bytes of UTF-8, of which each is one letter of Latin-1.
    sent = location.encode().decode("latin-1")
    assert get(other_server.page("/moved", b"", 302, Location=sent))[1] == b"there"
    assert other_server.seen[-1][1] == "/to%20gr%C3%BCn?q=a%20b"
