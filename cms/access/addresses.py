"""From where a role may be used: its `ip_access` (decisions, section 11)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache

from cms.errors import Problem, Refused

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Networks = frozenset[Network]


def networks_of(lists: object) -> tuple[Networks, ...]:
    """Return the networks of several roles' lists, each of which has to admit a caller; an empty list binds nobody.

    What is no address admits nobody: a slip must not open a role to everywhere.
    """
    found = lists if isinstance(lists, list) else [lists]
    return tuple(frozenset(_readable(said)) for said in found if said not in (None, []))


def network(said: object) -> Network:
    """Return an address or a network in CIDR notation; raises ValueError for anything else."""
    if not isinstance(said, str):
        raise ValueError(f"{said!r} is no text")
    return ipaddress.ip_network(said.strip(), strict=False)


@lru_cache(maxsize=4_096)
def address(text: str) -> str | None:
    """Return an address in its one canonical form, an IPv4 address within IPv6 as itself; None for what is none."""
    try:
        found = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def require_address(networks: Sequence[Networks], ip: str | None) -> None:
    """Raise `Refused` INVALID_IP unless every list of networks holds the address.

    Only the service itself calls from no address, and may.
    """
    if networks and ip is not None and not _holds(networks, ip):
        raise Refused(Problem("INVALID_IP", "This address may not be used."))


def _holds(networks: Sequence[Networks], ip: str) -> bool:
    found = address(ip)
    if found is None:
        return False
    parsed = ipaddress.ip_address(found)
    return all(any(parsed in network for network in each) for each in networks)


def _readable(said: object) -> Iterable[Network]:
    for entry in said if isinstance(said, list) else [said]:
        try:
            yield network(entry)
        except ValueError:
            continue
