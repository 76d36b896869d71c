"""Requests that the service sends for its users, to addresses that have been checked.

A name is resolved once, each of its addresses is checked, and the connection goes to one of these:
nothing is resolved again in between. A redirect is a new request and checked again. Proxies of the
environment are not used, because they would resolve names themselves.

Sockets and http.client, not urllib3: the deadline has to end the handshake of TLS as well, and
urllib3 takes a body for whole that ends in the middle of its gzip stream.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import certifi

from cms import zlib_windows
from cms.distribution import DISTRIBUTION
from cms.outgoing.outgoing_addresses import (
    Address,
    AddressDenied,
    AddressFilter,
    HostResolver,
    checked_addresses,
    parse_target,
    port_of,
    resolve_host,
)

MAX_REDIRECTS = 5
CONNECT_SECONDS = 5.0
"""For each address of a host."""

READ_SECONDS = 30.0
"""Between two pieces of an answer; `FetchLimits` has the time for all of it."""

CHUNK_BYTES = 2**16

_USUAL_HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip",
    "User-Agent": DISTRIBUTION,
    "Connection": "close",
}
# With the percent sign: what is quoted already stays as it is.
_UNQUOTED = "/%:@!$&'()*+,;=~-._"
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
_POST_CHANGING_STATUSES = frozenset({301, 302})
_HARMLESS_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Headers that a request takes along to another server; any other one may be a secret."""
_BODY_HEADERS = frozenset(
    {"content-type", "content-length", "content-encoding", "transfer-encoding"}
)


class FetchError(Exception):
    """A server that does not answer properly; the text says how."""


class ResponseTooLarge(Exception):
    """A response with more bytes than allowed."""


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request to another server; without `follows_redirects` a redirect is its response."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    follows_redirects: bool = True


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


@contextmanager
def fetch(
    request: OutgoingRequest,
    address_filter: AddressFilter,
    *,
    limits: FetchLimits,
    resolve: HostResolver | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> Iterator[OutgoingResponse]:
    """Send a request, follow redirects, and yield the response while its connection is open.

    Raises `AddressDenied` for an address that may not be requested, `FetchError` for a server that
    does not answer. `resolve` and `ssl_context` replace the system's own.
    """
    # One for all redirects: otherwise each of them would begin anew.
    deadline = time.monotonic() + limits.seconds
    ssl_context = ssl_context or _default_ssl_context()
    for _ in range(MAX_REDIRECTS + 1):
        target = parse_target(request.url)
        resolver = _resolver_until(deadline, resolve or resolve_host)
        # Resolved once: the connection goes to one of these addresses, so that a second look at the
        # name cannot lead elsewhere.
        addresses = checked_addresses(target, address_filter, resolver)
        with (
            _connection(target, addresses, deadline, ssl_context) as connection,
            _send_request(connection, request, target) as response,
        ):
            location = _location_of(response) if request.follows_redirects else None
            if location is None:
                headers = {
                    name.lower(): _in_utf8(value) for name, value in response.headers.items()
                }
                chunks = _body(response, deadline, limits.size)
                yield OutgoingResponse(
                    request.url, response.status, response.reason, headers, chunks
                )
                return
        request = _redirect(request, location, response.status)
    raise FetchError(f"it redirects more than {MAX_REDIRECTS} times")


def _location_of(response: http.client.HTTPResponse) -> str | None:
    """Return where a response redirects to; None where it does not."""
    if response.status not in _REDIRECT_STATUSES:
        return None
    location = response.headers.get("Location")
    return location and _in_utf8(location)


def _in_utf8(header: str) -> str:
    """Return the value of a header, which was read as Latin-1, as UTF-8 where it is that."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _resolver_until(deadline: float, resolve: HostResolver) -> HostResolver:
    """Return a resolver that raises `FetchError` at the deadline: the system's own has none."""

    def resolve_until_deadline(host: str, port: int) -> Sequence[Address]:
        addresses: Future[Sequence[Address]] = Future()

        def resolve_in_thread() -> None:
            try:
                addresses.set_result(resolve(host, port))
            except Exception as error:
                addresses.set_exception(error)

        threading.Thread(target=resolve_in_thread, daemon=True).start()
        try:
            return addresses.result(max(deadline - time.monotonic(), 0))
        except TimeoutError:
            raise FetchError("its name takes too long to resolve") from None

    return resolve_until_deadline


# The exchange


@contextmanager
def _connection(
    target: SplitResult, addresses: Sequence[Address], deadline: float, ssl_context: ssl.SSLContext
) -> Iterator[http.client.HTTPConnection]:
    """Connect to one of the addresses, and hang up at the deadline whatever is being waited for."""
    plain_socket = _connect(addresses, port_of(target), deadline)
    # TLS takes the socket over, so the timer gets a handle of its own.
    handle = plain_socket.dup()
    # Time-outs of a socket count from its last byte, so a server could drip for ever.
    timer = threading.Timer(max(deadline - time.monotonic(), 0), _hang_up, (handle,))
    timer.daemon = True
    timer.start()
    # By name, not by address: the Host header and the certificate need the name.
    connection = http.client.HTTPConnection(str(target.hostname), port_of(target))
    try:
        connection.sock = plain_socket
        if target.scheme == "https":
            connection.sock = _with_tls(plain_socket, target, ssl_context)
        yield connection
    finally:
        timer.cancel()
        connection.close()
        plain_socket.close()
        handle.close()


def _connect(addresses: Sequence[Address], port: int, deadline: float) -> socket.socket:
    # A machine without IPv6 cannot reach the IPv6 addresses of a host: the next one may work.
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
        reason = getattr(error, "verify_message", "it speaks no TLS")
        sentence = f"its certificate is not trusted or the handshake fails: {reason}"
        raise FetchError(sentence) from None


@cache
def _default_ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    # Beside the system's own authorities, of which a slim container has none.
    context.load_verify_locations(certifi.where())
    return context


def _send_request(
    connection: http.client.HTTPConnection, request: OutgoingRequest, target: SplitResult
) -> http.client.HTTPResponse:
    # In one spelling, so that a header of the request replaces the usual one.
    own_headers = {name.title(): value for name, value in request.headers.items()}
    try:
        connection.request(
            request.method, _request_target(target), request.body, _USUAL_HEADERS | own_headers
        )
        return connection.getresponse()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(
            f"it does not answer as a web server does ({type(error).__name__})"
        ) from None


def _request_target(target: SplitResult) -> str:
    """Return the path and query to send, with everything quoted that HTTP does not take."""
    path = quote(target.path or "/", safe=_UNQUOTED)
    if not target.query:
        return path
    query = quote(target.query, safe=_UNQUOTED + "?[]")
    return f"{path}?{query}"


def _redirect(request: OutgoingRequest, location: str, status: int) -> OutgoingRequest:
    """Return the request that a redirect asks for.

    Methods change as in the Fetch standard: 303 asks for a GET, 301 and 302 do so after a POST.
    Nothing but harmless headers goes to another origin. Raises `AddressDenied` for an invalid
    address, and for a body that would go to another origin.
    """
    try:
        url = urljoin(request.url, location)
        is_same_origin = _origin(url) == _origin(request.url)
    except ValueError:
        raise AddressDenied("it redirects to what is no address") from None
    if _becomes_get(request.method, status):
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _BODY_HEADERS
        }
        request = replace(request, method="GET", headers=headers, body=None)
    if is_same_origin:
        return replace(request, url=url)
    if request.body is not None:
        raise AddressDenied("it redirects to another server, which is not sent the body")
    headers = {
        name: value for name, value in request.headers.items() if name.lower() in _HARMLESS_HEADERS
    }
    return replace(request, url=url, headers=headers)


def _becomes_get(method: str, status: int) -> bool:
    if status in _POST_CHANGING_STATUSES:
        return method == "POST"
    return status == _SEE_OTHER and method != "HEAD"


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port; raises ValueError for an invalid address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, port_of(parts)


def _body(response: http.client.HTTPResponse, deadline: float, max_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a response, decoded and counted.

    Raises `FetchError` for a response that breaks off or takes too long.
    """
    size = 0
    encoding = response.headers.get("Content-Encoding", "")
    for chunk in _decoded(_read_raw(response, deadline), encoding):
        size += len(chunk)
        if size > max_bytes:
            raise ResponseTooLarge
        yield chunk


def _read_raw(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    while True:
        if time.monotonic() > deadline:
            raise FetchError("it takes too long")
        try:
            # read1() returns what is there; read() would wait until the chunk is full, past the
            # deadline of a slow server.
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
    decoder = zlib.decompressobj(wbits=zlib_windows.GZIP)
    has_begun = False
    for chunk in chunks:
        has_begun = True
        yield from _inflate(decoder, chunk)
    # No bytes at all are an empty body, encoded or not.
    if has_begun and not decoder.eof:
        raise FetchError("it breaks off")


def _inflate(decoder: zlib._Decompress, chunk: bytes) -> Iterator[bytes]:
    try:
        # Nothing counts behind the end of the stream.
        while chunk and not decoder.eof:
            yield decoder.decompress(chunk, CHUNK_BYTES)
            chunk = decoder.unconsumed_tail
    except zlib.error:
        raise FetchError("its encoding is broken") from None
