"""Networks without public hosts: IANA's special-purpose address registries, and some more.

They are listed here because Python's own table is as old as the Python that runs. Every entry of
the registries is in, also those called globally reachable: nobody keeps files at such an address.
"""

from __future__ import annotations

import ipaddress

from cms.config import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

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
    embedded: list[ipaddress.IPv4Address] = []
    if any(address in network for network in _ENDS_IN_IPV4):
        embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address.sixtofour:
        embedded.append(address.sixtofour)
    embedded.extend(address.teredo or ())
    return tuple(embedded)
