"""Requests that the service sends for its users, to addresses that have been checked.

A name is resolved once, each of its addresses is checked, and the connection goes to one of these:
nothing is resolved again in between. A redirect is a new request and checked again. Proxies of the
environment are not used, because they would resolve names themselves.
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
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_SENSITIVE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
_BODY_HEADERS = frozenset(
    {"content-type", "content-length", "content-encoding", "transfer-encoding"}
)


class AddressDenied(Exception):
    """An address that must not be requested; the text says why, for whoever named it."""


class FetchError(Exception):
    """A server that does not answer properly; the text says how."""


class ResponseTooLarge(Exception):
    """A response with more bytes than allowed."""


@dataclass(frozen=True, slots=True)
class AddressFilter:
    """Which addresses may be requested: public and allowed ones, but never denied ones."""

    allowed: Sequence[Network] = ()
    denied: Sequence[Network] = ()

    @classmethod
    def from_config(cls, config: Config) -> AddressFilter:
        return cls(config.import_ip_allow_list, config.import_ip_deny_list)

    def allows(self, address: Address) -> bool:
        """Tell whether an address may be requested."""
        # An IPv6 address may lead to an IPv4 address that is denied.
        if _is_in((address, *embedded_ipv4(address)), self.denied):
            return False
        return _is_in(_with_mapped(address), self.allowed) or not (
            is_special(address) or _is_local(address)
        )


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request to another server."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of a response: seconds in all, with redirects, and bytes when decoded."""

    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class OutgoingResponse:
    """The response of the last `url`.

    Its chunks are decoded; they raise `FetchError` or `ResponseTooLarge`.
    """

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    chunks: Iterator[bytes]


class Resolver(Protocol):
    """Returns the addresses of a host, none for an unknown one."""

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
    """Send a request, follow redirects, and yield the response while its connection is open.

    Raises `AddressDenied` for an address that may not be requested, `FetchError` for a server that
    does not answer. `resolve` and `ssl_context` replace the system's own.
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
            location = None
            if response.status in _REDIRECT_STATUSES:
                location = response.headers.get("Location")
            if location is None:
                headers = {name.lower(): value for name, value in response.headers.items()}
                chunks = _body(response, deadline, limits.size)
                yield OutgoingResponse(
                    request.url, response.status, response.reason, headers, chunks
                )
                return
        request = _redirect(request, location, response.status)
    raise FetchError(f"it redirects more than {MAX_REDIRECTS} times")


# The address


def _target(url: str) -> SplitResult:
    if re.search(r"[\x00-\x20\x7f\\]", url):
        raise AddressDenied("the address has characters that no address has")
    try:
        target = urlsplit(url)
        port = target.port
    except ValueError:
        raise AddressDenied("it is no address") from None
    if target.scheme not in _PORTS:
        raise AddressDenied("only http and https are asked")
    if not target.hostname or port == 0 or "%" in target.hostname:
        raise AddressDenied("the address names no host")
    if target.username is not None or target.password is not None:
        raise AddressDenied("the address must not hold credentials")
    return target


def _port(target: SplitResult) -> int:
    return target.port or _PORTS[target.scheme]


def _checked_addresses(
    target: SplitResult, address_filter: AddressFilter, resolve: Resolver
) -> Sequence[Address]:
    """Return all addresses of a host; raises `AddressDenied` if one of them may not be requested.

    An unknown name is refused like one of the internal network: nobody learns which names there
    are.
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
    """Return an address, and the IPv4 address that it maps to, if any."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (address, mapped) if mapped else (address,)


def _is_in(forms: Sequence[Address], networks: Sequence[Network]) -> bool:
    """Tell whether one of the forms of an address lies in one of the networks."""
    return any(form in network for form in forms for network in networks)


def _is_local(address: Address) -> bool:
    """Tell whether an address belongs to this machine: only such an address can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return False


# The exchange


@contextmanager
def _connection(
    target: SplitResult, addresses: Sequence[Address], deadline: float, ssl_context: ssl.SSLContext
) -> Iterator[http.client.HTTPConnection]:
    """Connect to one of the addresses, and hang up at the deadline whatever is being waited for."""
    plain_socket = _connect(addresses, _port(target), deadline)
    # TLS takes the socket over, so the timer gets a handle of its own.
    handle = plain_socket.dup()
    timer = threading.Timer(max(deadline - time.monotonic(), 0), _hang_up, (handle,))
    timer.daemon = True
    timer.start()
    # By name, not by address: the Host header and the certificate need the name.
    connection = http.client.HTTPConnection(str(target.hostname), _port(target))
    try:
        connection.sock = (
            _with_tls(plain_socket, target, ssl_context)
            if target.scheme == "https"
            else plain_socket
        )
        yield connection
    finally:
        timer.cancel()
        connection.close()
        plain_socket.close()
        handle.close()


def _connect(addresses: Sequence[Address], port: int, deadline: float) -> socket.socket:
    for address in addresses:
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            break
        with suppress(OSError):
            connection = socket.create_connection(
                (str(address), port), min(CONNECT_SECONDS, seconds_left)
            )
            connection.settimeout(READ_SECONDS)
            return connection
    raise FetchError("it cannot be reached")


def _hang_up(open_socket: socket.socket) -> None:
    with suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)


def _with_tls(
    plain_socket: socket.socket, target: SplitResult, ssl_context: ssl.SSLContext
) -> ssl.SSLSocket:
    try:
        return ssl_context.wrap_socket(plain_socket, server_hostname=target.hostname)
    except (OSError, ValueError) as error:
        reason = "it speaks no TLS"
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message
        raise FetchError(
            f"its certificate is not trusted or the handshake fails: {reason}"
        ) from None


@cache
def _default_ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


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
    own_headers = {name.title(): value for name, value in request.headers.items()}
    try:
        connection.request(
            request.method,
            f"{path}?{query}" if query else path,
            request.body,
            headers | own_headers,
        )
        return connection.getresponse()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(
            f"it does not answer as a web server does ({type(error).__name__})"
        ) from None


def _redirect(request: OutgoingRequest, location: str, status: int) -> OutgoingRequest:
    """Return the request that a redirect asks for.

    Nothing secret goes to another server, and no body goes along where the method changes.
    """
    url = urljoin(request.url, location)
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
    """Yield the bytes of a response, decoded and counted.

    Raises `FetchError` for a response that breaks off or takes too long.
    """
    size = 0
    for chunk in _decoded(
        _read_raw(response, deadline), response.headers.get("Content-Encoding", "")
    ):
        size += len(chunk)
        if size > max_bytes:
            raise ResponseTooLarge
        yield chunk


def _read_raw(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    while True:
        if time.monotonic() > deadline:
            raise FetchError("it takes too long")
        try:
            chunk = response.read1(CHUNK_BYTES)
        except (OSError, http.client.HTTPException, ValueError):
            raise FetchError("it breaks off") from None
        if not chunk:
            break
        yield chunk
    # Less than the server announced, or cut off by the timer.
    if response.length or time.monotonic() > deadline:
        raise FetchError("it breaks off")


def _decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Undo gzip in small chunks: a short body may expand to gigabytes."""
    coding = encoding.strip().lower()
    if coding in ("", "identity"):
        yield from chunks
        return
    if coding not in ("gzip", "x-gzip"):
        raise FetchError(f"it is encoded in a way that was not asked for ({coding[:20]})")
    decoder = zlib.decompressobj(wbits=31)
    has_begun = False
    for chunk in chunks:
        has_begun = True
        yield from _inflate(decoder, chunk)
    if has_begun and not decoder.eof:
        raise FetchError("it breaks off")


def _inflate(decoder: zlib._Decompress, chunk: bytes) -> Iterator[bytes]:
    try:
        while chunk and not decoder.eof:
            yield decoder.decompress(chunk, CHUNK_BYTES)
            chunk = decoder.unconsumed_tail
    except zlib.error:
        raise FetchError("its encoding is broken") from None
