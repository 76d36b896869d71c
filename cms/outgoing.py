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
from cms.special_networks import embedded_ipv4, is_special

MAX_REDIRECTS = 5
CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
CHUNK_BYTES = 2**16

_PORTS = {"http": 80, "https": 443}
_SENSITIVE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
_BODY_HEADERS = frozenset(
    {"content-type", "content-length", "content-encoding", "transfer-encoding"}
)


class AddressDenied(Exception):
    """An address that must not be asked; the text says why, for whoever named it."""


class FetchError(Exception):
    """A source that does not answer as it should; the text says how."""


class ResponseTooLarge(Exception):
    """An answer with more bytes than there may be."""


@dataclass(frozen=True, slots=True)
class AddressFilter:
    """Which addresses may be asked: all public ones, and what is allowed besides, but never what is denied."""

    allowed: Sequence[Network] = ()
    denied: Sequence[Network] = ()

    @classmethod
    def from_config(cls, config: Config) -> AddressFilter:
        return cls(config.import_ip_allow_list, config.import_ip_deny_list)

    def allows(self, address: Address) -> bool:
        """Tell whether an address may be asked."""
        if _is_in((address, *embedded_ipv4(address)), self.denied):
            return False
        return _is_in(_with_mapped(address), self.allowed) or not (
            is_special(address) or _is_local(address)
        )


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """What is asked."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What an answer may take: seconds for all of it with its redirects, and bytes when decoded."""

    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class OutgoingResponse:
    """The answer of the last `url`; its bytes come decoded, and raise `FetchError` or `ResponseTooLarge`."""

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
    request: OutgoingRequest,
    address_filter: AddressFilter,
    *,
    limits: FetchLimits,
    resolve: Resolver | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> Iterator[OutgoingResponse]:
    """Ask, follow redirects, and yield the answer while its connection is open.

    Raises `AddressDenied` for what may not be asked, `FetchError` for a source that does not answer. `resolve` and
    `ssl_context` stand in for the system's own.
    """
    deadline = time.monotonic() + limits.seconds
    for _ in range(MAX_REDIRECTS + 1):
        target = _target(request.url)
        addresses = _checked_addresses(target, address_filter, resolve or _resolve)
        with (
            _connection(
                target, addresses, deadline, ssl_context or _default_ssl_context()
            ) as connection,
            _send_request(connection, request, target) as response,
        ):
            onward = (
                response.headers.get("Location")
                if response.status in (301, 302, 303, 307, 308)
                else None
            )
            if onward is None:
                headers = {name.lower(): value for name, value in response.headers.items()}
                chunks = _body(response, deadline, limits.size)
                yield OutgoingResponse(
                    request.url, response.status, response.reason, headers, chunks
                )
                return
        request = _redirect(request, onward, response.status)
    raise FetchError(f"it redirects more than {MAX_REDIRECTS} times")


# Where to


def _target(url: str) -> SplitResult:
    if re.search(r"[\x00-\x20\x7f\\]", url):
        raise AddressDenied("the address has characters that no address has")
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        raise AddressDenied("it is no address") from None
    if found.scheme not in _PORTS:
        raise AddressDenied("only http and https are asked")
    if not found.hostname or port == 0 or "%" in found.hostname:
        raise AddressDenied("the address names no host")
    if found.username is not None or found.password is not None:
        raise AddressDenied("the address must not hold credentials")
    return found


def _port(target: SplitResult) -> int:
    return target.port or _PORTS[target.scheme]


def _checked_addresses(
    target: SplitResult, address_filter: AddressFilter, resolve: Resolver
) -> Sequence[Address]:
    """Return all addresses of a host; raises `AddressDenied` when one of them may not be asked.

    A name that is not there is refused like one inside: nobody learns which names a network has.
    """
    addresses = resolve(str(target.hostname), _port(target))
    if not addresses or not all(map(address_filter.allows, addresses)):
        raise AddressDenied("the host is not known, or not one that may be asked")
    return addresses


def _resolve(host: str, port: int) -> Sequence[Address]:
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(ipaddress.ip_address(str(record[4][0])) for record in records))


def _with_mapped(address: Address) -> tuple[Address, ...]:
    """Return an address, and the IPv4 address that it stands for if it does."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (address, mapped) if mapped else (address,)


def _is_in(forms: Sequence[Address], networks: Sequence[Network]) -> bool:
    return any(form in network for form in forms for network in networks)


def _is_local(address: Address) -> bool:
    """Tell whether an address is one of this machine's: only those can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return False


# There and back


@contextmanager
def _connection(
    target: SplitResult, addresses: Sequence[Address], deadline: float, ssl_context: ssl.SSLContext
) -> Iterator[http.client.HTTPConnection]:
    """Connect to one of the addresses, and hang up at the deadline whatever is being waited for."""
    bare = _connect(addresses, _port(target), deadline)
    handle = bare.dup()  # TLS takes the socket over, and this stays
    ending = threading.Timer(max(deadline - time.monotonic(), 0), _hang_up, (handle,))
    ending.daemon = True
    ending.start()
    # The name, not the address: it is what the Host header and the certificate speak of.
    connection = http.client.HTTPConnection(str(target.hostname), _port(target))
    try:
        connection.sock = _with_tls(bare, target, ssl_context) if target.scheme == "https" else bare
        yield connection
    finally:
        ending.cancel()
        connection.close()
        bare.close()
        handle.close()


def _connect(addresses: Sequence[Address], port: int, deadline: float) -> socket.socket:
    for address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        with suppress(OSError):
            found = socket.create_connection((str(address), port), min(CONNECT_SECONDS, left))
            found.settimeout(READ_SECONDS)
            return found
    raise FetchError("it cannot be reached")


def _hang_up(open_socket: socket.socket) -> None:
    with suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)


def _with_tls(
    bare: socket.socket, target: SplitResult, ssl_context: ssl.SSLContext
) -> ssl.SSLSocket:
    try:
        return ssl_context.wrap_socket(bare, server_hostname=target.hostname)
    except (OSError, ValueError) as fault:
        reason = (
            fault.verify_message
            if isinstance(fault, ssl.SSLCertVerificationError)
            else "it speaks no TLS"
        )
        raise FetchError(
            f"its certificate is not trusted or the handshake fails: {reason}"
        ) from None


@cache
def _default_ssl_context() -> ssl.SSLContext:
    found = ssl.create_default_context()
    found.load_verify_locations(certifi.where())
    return found


def _send_request(
    connection: http.client.HTTPConnection, request: OutgoingRequest, target: SplitResult
) -> http.client.HTTPResponse:
    path = quote(target.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(target.query, safe="/%:@!$&'()*+,;=~-._?[]")
    headers = {
        "Accept": "*/*",
        "Accept-Encoding": "gzip",
        "User-Agent": "cms",
        "Connection": "close",
    }
    said = {name.title(): value for name, value in request.headers.items()}
    try:
        connection.request(
            request.method, f"{path}?{query}" if query else path, request.body, headers | said
        )
        return connection.getresponse()
    except (OSError, http.client.HTTPException, ValueError) as fault:
        raise FetchError(
            f"it does not answer as a web server does ({type(fault).__name__})"
        ) from None


def _redirect(request: OutgoingRequest, onward: str, status: int) -> OutgoingRequest:
    """Return what a redirect asks for: nothing secret goes to another server, and no body where the method changes."""
    url = urljoin(request.url, onward)
    headers = dict(request.headers)
    if urlsplit(url)[:2] != urlsplit(request.url)[:2]:
        headers = {
            name: value for name, value in headers.items() if name.lower() not in _SENSITIVE_HEADERS
        }
    if status in (307, 308) or request.method in ("GET", "HEAD"):
        return replace(request, url=url, headers=headers)
    headers = {name: value for name, value in headers.items() if name.lower() not in _BODY_HEADERS}
    return OutgoingRequest(url, "GET", headers)


def _body(response: http.client.HTTPResponse, deadline: float, max_bytes: int) -> Iterator[bytes]:
    """Yield the bytes, decoded and counted; an answer that breaks off or takes too long raises `FetchError`."""
    size = 0
    for piece in _decoded(
        _read_raw(response, deadline), response.headers.get("Content-Encoding", "")
    ):
        size += len(piece)
        if size > max_bytes:
            raise ResponseTooLarge
        yield piece


def _read_raw(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    while True:
        if time.monotonic() > deadline:
            raise FetchError("it takes too long")
        try:
            piece = response.read1(CHUNK_BYTES)
        except (OSError, http.client.HTTPException, ValueError):
            raise FetchError("it breaks off") from None
        if not piece:
            break
        yield piece
    if response.length or time.monotonic() > deadline:  # the end came before all that was announced
        raise FetchError("it breaks off")


def _decoded(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Undo gzip, never more than a piece of it at a time."""
    coding = encoding.strip().lower()
    if coding in ("", "identity"):
        yield from pieces
        return
    if coding not in ("gzip", "x-gzip"):
        raise FetchError(f"it is encoded in a way that was not asked for ({coding[:20]})")
    decoder = zlib.decompressobj(wbits=31)
    started = False
    for piece in pieces:
        started = True
        yield from _inflate(decoder, piece)
    if started and not decoder.eof:
        raise FetchError("it breaks off")


def _inflate(decoder: zlib._Decompress, piece: bytes) -> Iterator[bytes]:
    try:
        while piece and not decoder.eof:
            yield decoder.decompress(piece, CHUNK_BYTES)
            piece = decoder.unconsumed_tail
    except zlib.error:
        raise FetchError("its encoding is broken") from None
