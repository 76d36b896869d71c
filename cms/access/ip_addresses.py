"""The addresses that a role may be used from: its `ip_access` (docs/permissions.md)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache

from cms.config import Network
from cms.errors import Problem, Refused

Networks = frozenset[Network]

_MAX_ADDRESS_LENGTH = 100
"""Of IPv6 with a zone, which may be the name of an interface, and spaces around it."""


def networks_of(lists: object) -> tuple[Networks, ...]:
    """Return the networks of several roles' lists; a caller must be admitted by each of them.

    An empty list restricts nobody. Entries that are no address admit nobody: a typing error must
    not open a role to everywhere.
    """
    entries_by_role = lists if isinstance(lists, list) else [lists]
    networks: list[Networks] = []
    for entries in entries_by_role:
        if entries not in (None, []):
            networks.append(frozenset(_readable_networks(entries)))
    return tuple(networks)


def network(value: object) -> Network:
    """Return an address or a network in CIDR notation; raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    # Not strict: 10.1.2.3/8 means the network that holds the address.
    return ipaddress.ip_network(value.strip(), strict=False)


def address(text: str) -> str | None:
    """Return an address in its canonical form, or None for a text that is no address.

    An IPv4 address within IPv6 becomes the IPv4 address.
    """
    # Headers with long texts would fill the memory of the cache.
    if len(text) > _MAX_ADDRESS_LENGTH:
        return None
    return _canonical_address(text)


@lru_cache(maxsize=4_096)
def _canonical_address(text: str) -> str | None:
    try:
        # Behind % stands the zone of a link-local address, fe80::1%eth0.
        parsed = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    # A socket for both families reports 192.0.2.1 as ::ffff:192.0.2.1, which no list of addresses
    # has.
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(parsed)


def require_address(networks: Sequence[Networks], ip: str | None) -> None:
    """Raise `Refused` INVALID_IP unless every list of networks holds the address."""
    if not admits(networks, ip):
        raise Refused(Problem("INVALID_IP", "This address may not be used."))


def admits(networks: Sequence[Networks], ip: str | None) -> bool:
    """Tell whether every list of networks holds an address.

    A caller without an address is the service itself, which may.
    """
    return not networks or ip is None or _all_hold(networks, ip)


def _all_hold(networks: Sequence[Networks], ip: str) -> bool:
    canonical = address(ip)
    if canonical is None:
        return False
    parsed = ipaddress.ip_address(canonical)
    return all(_holds(role_networks, parsed) for role_networks in networks)


def _holds(networks: Networks, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(ip in network for network in networks)


def _readable_networks(entries: object) -> Iterable[Network]:
    if not isinstance(entries, list):
        entries = [entries]
    for entry in entries:
        try:
            yield network(entry)
        except ValueError:
            continue
