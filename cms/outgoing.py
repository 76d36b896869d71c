"""Requests that the service sends for its users, to addresses that have been checked (decisions, sections 7 and 15).

A name is resolved once, every address that it has is checked, and the connection goes to one of those: nothing can
be resolved anew in between. A redirect is a request of its own, and so checked again. Proxies of the environment are
not used: they would resolve names themselves.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import certifi

from cms.config import Config, Network
from cms.special_networks import Address as Address
from cms.special_networks import embedded, is_special

MOST_REDIRECTS = 5
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 30.0
PIECE = 2**16

_PORTS = {"http": 80, "https": 443}
_SENSITIVE = frozenset({"authorization", "cookie", "proxy-authorization"})
_OF_BODY = frozenset({"content-type", "content-length", "content-encoding", "transfer-encoding"})


class Denied(Exception):
    """An address that must not be asked; the text says why, for whoever named it."""


class Failed(Exception):
    """A source that does not answer as it should; the text says how."""


class TooLarge(Exception):
    """An answer with more bytes than there may be."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Which addresses may be asked: all public ones, and what is allowed besides, but never what is denied."""

    allowed: Sequence[Network] = ()
    denied: Sequence[Network] = ()

    @classmethod
    def of(cls, config: Config) -> Reach:
        return cls(config.import_ip_allow_list, config.import_ip_deny_list)

    def admits(self, address: Address) -> bool:
        """Tell whether an address may be asked."""
        if _within((address, *embedded(address)), self.denied):
            return False
        return _within(_forms(address), self.allowed) or not (is_special(address) or _is_own(address))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is asked."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What an answer may take: seconds for all of it with its redirects, and bytes when decoded."""

    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back from the last `url` asked; its bytes come decoded, and raise `Failed` or `TooLarge`."""

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    chunks: Iterator[bytes]


class Resolver(Protocol):
    """What tells the addresses of a host: none of one that is not known."""

    def __call__(self, host: str, port: int) -> Sequence[Address]: ...


@contextmanager
def fetch(
    asked: Outgoing,
    reach: Reach,
    *,
    limits: Limits,
    resolve: Resolver | None = None,
    trust: ssl.SSLContext | None = None,
) -> Iterator[Answer]:
    """Ask, follow redirects, and yield the answer while its connection is open.

    Raises `Denied` for what may not be asked, `Failed` for a source that does not answer. `resolve` and `trust` stand
    in for the system's own.
    """
    deadline = time.monotonic() + limits.seconds
    for _ in range(MOST_REDIRECTS + 1):
        target = _target(asked.url)
        addresses = _checked(target, reach, resolve or _resolved)
        with (
            _connected(target, addresses, deadline, trust or _trusted()) as connection,
            _answered(connection, asked, target) as response,
        ):
            onward = response.headers.get("Location") if response.status in (301, 302, 303, 307, 308) else None
            if onward is None:
                headers = {name.lower(): value for name, value in response.headers.items()}
                chunks = _body(response, deadline, limits.size)
                yield Answer(asked.url, response.status, response.reason, headers, chunks)
                return
        asked = _redirected(asked, onward, response.status)
    raise Failed(f"it redirects more than {MOST_REDIRECTS} times")


# Where to


def _target(url: str) -> SplitResult:
    if re.search(r"[\x00-\x20\x7f\\]", url):
        raise Denied("the address has characters that no address has")
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        raise Denied("it is no address") from None
    if found.scheme not in _PORTS:
        raise Denied("only http and https are asked")
    if not found.hostname or port == 0 or "%" in found.hostname:
        raise Denied("the address names no host")
    if found.username is not None or found.password is not None:
        raise Denied("the address must not hold credentials")
    return found


def _port(target: SplitResult) -> int:
    return target.port or _PORTS[target.scheme]


def _checked(target: SplitResult, reach: Reach, resolve: Resolver) -> Sequence[Address]:
    """Return all addresses of a host; raises `Denied` when one of them may not be asked.

    A name that is not there is refused like one inside: nobody learns which names a network has.
    """
    addresses = resolve(str(target.hostname), _port(target))
    if not addresses or not all(map(reach.admits, addresses)):
        raise Denied("the host is not known, or not one that may be asked")
    return addresses


def _resolved(host: str, port: int) -> Sequence[Address]:
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(ipaddress.ip_address(str(record[4][0])) for record in records))


def _forms(address: Address) -> tuple[Address, ...]:
    """Return an address, and the IPv4 address that it stands for if it does."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (address, mapped) if mapped else (address,)


def _within(forms: Sequence[Address], networks: Sequence[Network]) -> bool:
    return any(form in network for form in forms for network in networks)


def _is_own(address: Address) -> bool:
    """Tell whether an address is one of this machine's: only those can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return False


# There and back


@contextmanager
def _connected(
    target: SplitResult, addresses: Sequence[Address], deadline: float, trust: ssl.SSLContext
) -> Iterator[http.client.HTTPConnection]:
    """Connect to one of the addresses, and hang up at the deadline whatever is being waited for."""
    bare = _opened(addresses, _port(target), deadline)
    handle = bare.dup()  # TLS takes the socket over, and this stays
    ending = threading.Timer(max(deadline - time.monotonic(), 0), _hang_up, (handle,))
    ending.daemon = True
    ending.start()
    # The name, not the address: it is what the Host header and the certificate speak of.
    connection = http.client.HTTPConnection(str(target.hostname), _port(target))
    try:
        connection.sock = _secured(bare, target, trust) if target.scheme == "https" else bare
        yield connection
    finally:
        ending.cancel()
        connection.close()
        bare.close()
        handle.close()


def _opened(addresses: Sequence[Address], port: int, deadline: float) -> socket.socket:
    for address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        with suppress(OSError):
            found = socket.create_connection((str(address), port), min(CONNECT_SECONDS, left))
            found.settimeout(SILENCE_SECONDS)
            return found
    raise Failed("it cannot be reached")


def _hang_up(open_socket: socket.socket) -> None:
    with suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)


def _secured(bare: socket.socket, target: SplitResult, trust: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return trust.wrap_socket(bare, server_hostname=target.hostname)
    except (OSError, ValueError) as fault:
        reason = fault.verify_message if isinstance(fault, ssl.SSLCertVerificationError) else "it speaks no TLS"
        raise Failed(f"its certificate is not trusted or the handshake fails: {reason}") from None


@cache
def _trusted() -> ssl.SSLContext:
    found = ssl.create_default_context()
    found.load_verify_locations(certifi.where())
    return found


def _answered(connection: http.client.HTTPConnection, asked: Outgoing, target: SplitResult) -> http.client.HTTPResponse:
    path = quote(target.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(target.query, safe="/%:@!$&'()*+,;=~-._?[]")
    headers = {"Accept": "*/*", "Accept-Encoding": "gzip", "User-Agent": "cms", "Connection": "close"}
    said = {name.title(): value for name, value in asked.headers.items()}
    try:
        connection.request(asked.method, f"{path}?{query}" if query else path, asked.body, headers | said)
        return connection.getresponse()
    except (OSError, http.client.HTTPException, ValueError) as fault:
        raise Failed(f"it does not answer as a web server does ({type(fault).__name__})") from None


def _redirected(asked: Outgoing, onward: str, status: int) -> Outgoing:
    """Return what a redirect asks for: nothing secret goes to another server, and no body where the method changes."""
    url = urljoin(asked.url, onward)
    headers = dict(asked.headers)
    if urlsplit(url)[:2] != urlsplit(asked.url)[:2]:
        headers = {name: value for name, value in headers.items() if name.lower() not in _SENSITIVE}
    if status in (307, 308) or asked.method in ("GET", "HEAD"):
        return replace(asked, url=url, headers=headers)
    headers = {name: value for name, value in headers.items() if name.lower() not in _OF_BODY}
    return Outgoing(url, "GET", headers)


def _body(response: http.client.HTTPResponse, deadline: float, most: int) -> Iterator[bytes]:
    """Yield the bytes, decoded and counted; an answer that breaks off or takes too long raises `Failed`."""
    size = 0
    for piece in _decoded(_received(response, deadline), response.headers.get("Content-Encoding", "")):
        size += len(piece)
        if size > most:
            raise TooLarge
        yield piece


def _received(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    while True:
        if time.monotonic() > deadline:
            raise Failed("it takes too long")
        try:
            piece = response.read1(PIECE)
        except (OSError, http.client.HTTPException, ValueError):
            raise Failed("it breaks off") from None
        if not piece:
            break
        yield piece
    if response.length or time.monotonic() > deadline:  # the end came before all that was announced
        raise Failed("it breaks off")


def _decoded(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Undo gzip, never more than a piece of it at a time."""
    coding = encoding.strip().lower()
    if coding in ("", "identity"):
        yield from pieces
        return
    if coding not in ("gzip", "x-gzip"):
        raise Failed(f"it is encoded in a way that was not asked for ({coding[:20]})")
    decoder = zlib.decompressobj(wbits=31)
    started = False
    for piece in pieces:
        started = True
        yield from _inflated(decoder, piece)
    if started and not decoder.eof:
        raise Failed("it breaks off")


def _inflated(decoder: zlib._Decompress, piece: bytes) -> Iterator[bytes]:
    try:
        while piece and not decoder.eof:
            yield decoder.decompress(piece, PIECE)
            piece = decoder.unconsumed_tail
    except zlib.error:
        raise Failed("its encoding is broken") from None
