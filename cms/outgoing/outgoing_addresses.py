"""Which addresses the service may send requests to, for its users."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

import idna

from cms.config import Config, Network
from cms.text_shapes import DEFAULT_PORTS

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Networks without public hosts: IANA's special-purpose address registries, and some more. They are
# listed here because Python's own table is as old as the Python that runs. Every entry of the
# registries is in, also those called globally reachable: nobody keeps files at such an address.
IPV4 = (
    "0.0.0.0/8",  # this network
    "10.0.0.0/8",  # private use
    "100.64.0.0/10",  # shared address space of carriers
    "127.0.0.0/8",  # loopback
    "168.63.129.16/32",  # the host of a virtual machine in a large cloud, a public address
    "169.254.0.0/16",  # link-local, where clouds keep their metadata
    "172.16.0.0/12",  # private use
    "192.0.0.0/24",  # IETF protocol assignments, and the metadata of another cloud
    "192.0.2.0/24",  # documentation
    "192.31.196.0/24",  # AS112
    "192.52.193.0/24",  # AMT
    "192.88.99.0/24",  # relays of 6to4, deprecated
    "192.168.0.0/16",  # private use
    "192.175.48.0/24",  # AS112, direct delegation
    "198.18.0.0/15",  # benchmarking
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved (class E), with the limited broadcast
)

IPV6 = (
    "::/96",  # unspecified, loopback, IPv4-compatible
    "::ffff:0:0/96",  # IPv4-mapped
    "::ffff:0:0:0/96",  # IPv4-translated
    "64:ff9b::/96",  # NAT64, which leads to any IPv4 address
    "64:ff9b:1::/48",  # NAT64 of a network's own
    "100::/64",  # discard-only
    "100:0:0:1::/64",  # dummy prefix
    "2001::/23",  # IETF protocol assignments: Teredo, benchmarking, AMT, AS112, ORCHID, DETs
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4, which leads to any IPv4 address
    "2620:4f:8000::/48",  # AS112, direct delegation
    "3fff::/20",  # documentation
    "5f00::/16",  # segment routing
    "fc00::/7",  # unique local
    "fe80::/10",  # link-local
    "fec0::/10",  # site-local, deprecated
    "ff00::/8",  # multicast
    "::/3",  # global unicast is 2000::/3 and nothing else
    "4000::/2",
    "8000::/1",
)

_SPECIAL: dict[int, tuple[Network, ...]] = {
    4: tuple(map(ipaddress.ip_network, IPV4)),
    6: tuple(map(ipaddress.ip_network, IPV6)),
}
_ENDS_IN_IPV4 = (
    ipaddress.IPv6Network("::/96"),
    ipaddress.IPv6Network("::ffff:0:0/96"),
    ipaddress.IPv6Network("::ffff:0:0:0/96"),
    ipaddress.IPv6Network("64:ff9b::/96"),
)
"""Networks whose addresses have an IPv4 address as their last 32 bits."""

# Parsers drop some of these, or take a backslash for a slash, and then read another host.
_NEVER_IN_A_URL = re.compile(r"[\x00-\x1f\x7f\\]")


class AddressDenied(Exception):
    """An address that must not be requested; the text gives the reason."""


class HostDenied(AddressDenied):
    """A host that is unknown now, or that may not be requested; the error does not say which."""


@dataclass(frozen=True, slots=True)
class AddressFilter:
    """Which addresses may be requested: public and allowed ones, but never denied ones.

    `hosts` are the only hosts that may be asked, if there are any: names in small letters, or
    `*.example.com` for all names below another one.
    """

    allowed: Sequence[Network] = ()
    denied: Sequence[Network] = ()
    hosts: Sequence[str] = ()

    @classmethod
    def from_config(cls, config: Config) -> AddressFilter:
        return cls(config.import_ip_allow_list, config.import_ip_deny_list)

    def allows_host(self, host: str) -> bool:
        """Tell whether a host may be asked, by its name."""
        # A dot at the end says only that the name is complete.
        name = host.lower().removesuffix(".")
        return not self.hosts or any(_is_host(name, pattern) for pattern in self.hosts)

    def allows(self, address: Address) -> bool:
        """Tell whether an address may be requested."""
        # An IPv6 address may lead to an IPv4 address that is denied.
        if _is_in((address, *embedded_ipv4(address)), self.denied):
            return False
        if _is_in(_with_mapped(address), self.allowed):
            return True
        # This machine may have public addresses too, and services that trust what comes from it.
        return not is_special(address) and not _is_local(address)


class HostResolver(Protocol):
    """Returns the addresses of a host, none for an unknown one."""

    def __call__(self, host: str, port: int) -> Sequence[Address]: ...


def parse_target(url: str) -> SplitResult:
    """Return the parts of a URL, the host in ASCII.

    Raises `AddressDenied` for one that is never requested.
    """
    # Browsers drop spaces and line breaks around an address.
    url = url.strip(" \t\r\n")
    if _NEVER_IN_A_URL.search(url):
        raise AddressDenied("the address has characters that no address has")
    try:
        url.encode()  # a half of a character has no bytes
        target = _with_ascii_host(urlsplit(url))
        port = target.port
    except ValueError:
        raise AddressDenied("it is no address") from None
    if target.scheme not in DEFAULT_PORTS:
        raise AddressDenied("only http and https are asked")
    # A percent sign begins the zone of an IPv6 address, which names a network card.
    if not target.hostname or port == 0 or "%" in target.hostname or " " in target.netloc:
        raise AddressDenied("the address names no host")
    if target.username is not None or target.password is not None:
        raise AddressDenied("the address must not hold credentials")
    return target


def _with_ascii_host(target: SplitResult) -> SplitResult:
    """Return the parts of a URL, the host in ASCII; raises ValueError for one that has none."""
    if target.netloc.isascii() or target.hostname is None:
        return target
    credentials, at, _ = target.netloc.rpartition("@")
    host = idna.encode(target.hostname, uts46=True).decode()
    port = f":{target.port}" if target.port is not None else ""
    return target._replace(netloc=f"{credentials}{at}{host}{port}")


def port_of(target: SplitResult) -> int:
    """Return the port of a URL; raises ValueError for one that is no number."""
    return target.port or DEFAULT_PORTS.get(target.scheme, 0)


def checked_addresses(
    target: SplitResult, address_filter: AddressFilter, resolve: HostResolver
) -> Sequence[Address]:
    """Return all addresses of a host; raises `HostDenied` if one of them may not be requested.

    A host that is not among the hosts of the filter is not even resolved: `AddressDenied`. An
    unknown name is refused like one of the internal network, so that names cannot be probed.
    """
    if not address_filter.allows_host(str(target.hostname)):
        raise AddressDenied("the host is not one that may be asked")
    addresses = resolve(str(target.hostname), port_of(target))
    if not addresses or not all(map(address_filter.allows, addresses)):
        raise HostDenied("the host is not known, or not one that may be asked")
    return addresses


def resolve_host(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host by the system's own resolver."""
    try:
        # SOCK_STREAM, because each address would otherwise come once for each kind of socket.
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = [ipaddress.ip_address(str(record[-1][0])) for record in records]
    # Each once, in the order of the resolver.
    return list(dict.fromkeys(addresses))


def _is_host(name: str, pattern: str) -> bool:
    # "*.example.com" without its star: the dot keeps out evilexample.com.
    if pattern.startswith("*."):
        return name.endswith(pattern[1:])
    return name == pattern


def _with_mapped(address: Address) -> tuple[Address, ...]:
    """Return an address, and the IPv4 address that it maps to, if any."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address, address.ipv4_mapped
    return (address,)


def _is_in(forms: Sequence[Address], networks: Sequence[Network]) -> bool:
    """Tell whether one of the forms of an address lies in one of the networks."""
    return any(form in network for form in forms for network in networks)


def _is_local(address: Address) -> bool:
    """Tell whether an address belongs to this machine: only such an address can be bound."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        # Port 0 is any free one, and nothing is sent.
        probe.bind((str(address), 0))
        return True
    return False


def is_special(address: Address) -> bool:
    """Tell whether an address lies in one of the networks, or maps to an IPv4 address that does."""
    if isinstance(address, ipaddress.IPv6Address):
        # Only link-local addresses have a scope, and no network below holds one with it.
        if address.scope_id:
            return True
        if address.ipv4_mapped:
            return is_special(address.ipv4_mapped)
    return any(address in network for network in _SPECIAL[address.version])


def embedded_ipv4(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    """Return the IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    embedded = [address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _ENDS_IN_IPV4):
        embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(each for each in embedded if each is not None)
