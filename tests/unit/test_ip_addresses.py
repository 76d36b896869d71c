"""Addresses as people and proxies write them."""

from __future__ import annotations

import pytest

from cms.access.ip_addresses import address, network


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        (" 192.0.2.1 ", "192.0.2.1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("192.0.2.01", None),
        ("3221225985", None),
        ("", None),
        ("localhost", None),
        ("fe80::1%" + "x" * 50_000, None),
    ],
)
def test_an_address_has_one_form(text: str, expected: str | None) -> None:
    assert address(text) == expected


@pytest.mark.parametrize(
    "text", ["", "192.0.2.0/33", "10.0.0.0-10.0.0.9", "*", 7, None, ["192.0.2.1"]]
)
def test_what_is_no_network_is_reported(text: object) -> None:
    with pytest.raises(ValueError):
        network(text)
