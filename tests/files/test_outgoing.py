"""Requests to addresses that users name: which are asked, and what an answer may take."""

from __future__ import annotations

import gzip
import ipaddress
import socket
import ssl
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cms.outgoing.outgoing_addresses import (
    Address,
    AddressDenied,
    AddressFilter,
    HostResolver,
    _is_local,
    checked_addresses,
    parse_target,
    resolve_host,
)
from cms.outgoing.outgoing_requests import (
    FetchError,
    FetchLimits,
    OutgoingRequest,
    OutgoingResponse,
    ResponseTooLarge,
    fetch,
)
from tests.files.sources import Source, raw_source, source

LOOPBACK = AddressFilter(allowed=[ipaddress.ip_network("127.0.0.1/32")])
LIMITS = FetchLimits(5, 1_000_000)


def get(
    url: str, reach: AddressFilter = LOOPBACK, limits: FetchLimits = LIMITS, **options: object
) -> tuple[OutgoingResponse, bytes]:
    request = OutgoingRequest(url)
    with fetch(request, reach, limits=limits, **options) as answer:  # type: ignore[arg-type]
        return answer, b"".join(answer.chunks)


def permitted(url: str, resolve: HostResolver = resolve_host) -> Sequence[Address]:
    """Return the addresses that a request would go to; nothing is sent."""
    return checked_addresses(parse_target(url), AddressFilter(), resolve)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.0.0.1.",
        "0", "10.1",
        "0xa000001", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
        "[fe80::1]",
        "[fe80::1%25lo]", "①②⑦.⓪.⓪.①", "127。0。0。1",
    ],
)  # fmt: skip
def test_inner_addresses_are_not_asked_in_any_notation(host: str) -> None:
    with pytest.raises(AddressDenied):
        permitted(f"http://{host}:1/")


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255", "168.63.129.16", "169.254.0.0", "169.254.169.254", "169.254.255.255",
        "172.16.0.0",
        "172.31.255.255", "192.0.0.0", "192.0.0.9", "192.0.0.170", "192.0.0.192", "192.0.0.255",
        "192.0.2.1",
        "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.0.0", "192.168.255.255",
        "192.175.48.1", "198.18.0.0",
        "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255",
        "240.0.0.0", "255.255.255.254",
        "255.255.255.255", "::", "::1", "::8.8.8.8", "::ffff:10.0.0.1", "::ffff:192.0.0.192",
        "::ffff:168.63.129.16",
        "::ffff:0:8.8.8.8", "64:ff9b::10.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::1",
        "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "100::1", "100:0:0:1::1", "2001::1",
        "2001:0:808:808::1", "2001:1::1",
        "2001:2::1", "2001:3::1", "2001:4:112::1", "2001:10::1", "2001:20::1", "2001:30::1",
        "2001:1ff::1",
        "2001:db8::1", "2002:a00:1::", "2002:808:808::1", "2620:4f:8000::1", "3fff::1",
        "3fff:fff::1", "4000::1",
        "5f00::1", "8000::1", "fc00::1", "fd00:ec2::254", "fdff::1", "fe80::1", "febf::1",
        "fec0::1", "ff02::1",
        "ff0e::1", "fe80::1%lo", "2606:4700::1%lo",
    ],
)  # fmt: skip
def test_an_address_of_a_special_network_is_not_asked(address: str) -> None:
    assert not AddressFilter().allows(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
        "126.255.255.255",
        "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700::1111",
        "3ffe:ffff::1",
        "::ffff:8.8.8.8",
    ],
)  # fmt: skip
def test_every_other_address_is_asked(address: str) -> None:
    assert AddressFilter().allows(ipaddress.ip_address(address))


def test_an_inner_name_and_one_that_is_not_there_are_refused_alike() -> None:
    def resolve(host: str, port: int) -> list[Address]:
        return [ipaddress.ip_address("10.0.0.1")] if host == "inner.example" else []

    refusals = set()
    for url in ("http://inner.example/", "http://missing.example/", f"http://{'x' * 64}.example/"):
        with pytest.raises(AddressDenied) as refused:
            permitted(url, resolve=resolve_host if "xx" in url else resolve)
        refusals.add(str(refused.value))
    assert len(refusals) == 1


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "//example.com",
        "example.com", "",
        "http://", "http:///x", "http://example.com:0/", "http://example.com:99999/",
        "http://[::1", "http://[x]/",
        "http://user:pass@example.com/", "http://user@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://exa mple.com/", "http://example.com/\r\nX: y", "http://exam\tple.com/",
        "http://example.com\0/",
    ],
)  # fmt: skip
def test_what_is_no_address_of_the_web_is_not_asked(url: str) -> None:
    with pytest.raises(AddressDenied):
        get(url)


def test_this_machines_own_addresses_are_distinguished_from_those_of_others() -> None:
    assert _is_local(ipaddress.ip_address("127.0.0.1"))
    assert _is_local(ipaddress.ip_address(socket.gethostbyname(socket.gethostname())))
    assert not any(_is_local(ipaddress.ip_address(text)) for text in ("8.8.8.8", "2606:4700::1111"))


def test_the_lists_of_the_settings_add_and_take_away() -> None:
    inner = ipaddress.ip_network("10.0.0.0/8")
    public = ipaddress.ip_network("8.8.8.0/24")
    reach = AddressFilter(allowed=[inner], denied=[public, ipaddress.ip_network("10.9.0.0/16")])
    allowed = {
        text: reach.allows(ipaddress.ip_address(text))
        for text in ("10.1.1.1", "::ffff:10.1.1.1", "10.9.1.1", "8.8.8.8")
    }
    assert allowed == {
        "10.1.1.1": True,
        "::ffff:10.1.1.1": True,
        "10.9.1.1": False,
        "8.8.8.8": False,
    }


def test_what_is_denied_is_not_reached_through_a_network_that_translates() -> None:
    allowed = [
        ipaddress.ip_network(text) for text in ("64:ff9b::/96", "2002::/16", "2001::/32", "::/96")
    ]
    reach = AddressFilter(allowed=allowed, denied=[ipaddress.ip_network("10.0.0.0/8")])
    inner = (
        "64:ff9b::10.0.0.1",
        "2002:a00:1::1",
        "2001:0:a00:1::",
        "2001:0:808:808::f5ff:fffe",
        "::10.0.0.1",
    )
    outer = ("64:ff9b::8.8.8.8", "2002:808:808::1", "2001:0:808:808::f7f7:f7f7", "::8.8.8.8")
    assert [reach.allows(ipaddress.ip_address(text)) for text in inner] == [False] * len(inner)
    assert [reach.allows(ipaddress.ip_address(text)) for text in outer] == [True] * len(outer)


def test_an_answer_comes_with_its_status_and_headers(other_server: Source) -> None:
    answer, body = get(
        other_server.page("/a%20b", b"hello", 201, Content_Type="text/x") + "?q=ü&r=%2F#part"
    )
    assert (answer.status, answer.headers["content-type"], body) == (201, "text/x", b"hello")
    method, path, headers = other_server.seen[-1]
    assert (method, path) == ("GET", "/a%20b?q=%C3%BC&r=%2F")
    assert headers["Host"] == f"127.0.0.1:{other_server.port}"


def test_a_name_is_resolved_once_and_the_connection_goes_there(other_server: Source) -> None:
    lookups: list[str] = []

    def resolve(host: str, port: int) -> list[Address]:
        lookups.append(host)
        return (
            [ipaddress.ip_address("127.0.0.1")]
            if len(lookups) == 1
            else [ipaddress.ip_address("127.0.0.2")]
        )

    other_server.page("/pinned", b"here")
    _, body = get(other_server.url("/pinned", "files.example.com"), resolve=resolve)
    assert (body, lookups) == (b"here", ["files.example.com"])
    assert other_server.seen[-1][2]["Host"] == f"files.example.com:{other_server.port}"


def test_a_name_with_one_inner_address_among_its_own_is_not_asked(other_server: Source) -> None:
    def resolve(host: str, port: int) -> list[Address]:
        return [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("127.0.0.2")]

    before = len(other_server.seen)
    with pytest.raises(AddressDenied):
        get(other_server.url("/", "files.example.com"), resolve=resolve)
    assert len(other_server.seen) == before


def test_a_name_that_takes_too_long_ends_at_the_deadline() -> None:
    ends = threading.Event()
    ended: list[str] = []

    def resolve(host: str, port: int) -> Sequence[Address]:
        ends.wait(60)
        ended.append(host)
        return []

    with pytest.raises(FetchError, match="too long"):
        get("http://slow.example.com/", limits=FetchLimits(0.2, 1000), resolve=resolve)
    assert ended == []
    ends.set()


def test_redirects_are_followed_five_times(other_server: Source) -> None:
    for number in range(7):
        other_server.page(f"/r{number}", status=302, Location=f"/r{number + 1}")
    other_server.page("/r7", b"end")
    assert get(other_server.url("/r2"))[1] == b"end"
    with pytest.raises(FetchError, match="more than 5"):
        get(other_server.url("/r1"))


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2/",
        "http://localhost@10.0.0.1/",
        "//[::1]/",
        "file:///etc/passwd",
        "http://2130706434/",
        "http://[::1",
    ],
)
def test_every_redirect_is_checked_as_the_first_address_was(
    other_server: Source, target: str
) -> None:
    other_server.page("/away", status=302, Location=target)
    with pytest.raises(AddressDenied):
        get(other_server.url("/away"))


HEADERS = {
    "Authorization": "Bearer x",
    "Cookie": "a=b",
    "X-Api-Key": "secret",
    "Host": "own.example.com",
    "Content-Type": "text/plain",
    "Accept-Language": "de",
}


def test_another_origin_gets_harmless_headers_only(other_server: Source) -> None:
    with source() as other:
        other.page("/end", b"end")
        other.page("/back", status=307, Location=other_server.url("/end"))
        other_server.page("/end", b"end")
        other_server.page("/there", status=302, Location=other.url("/end"))
        other_server.page("/there-and-back", status=302, Location=other.url("/back"))
        other_server.page("/same", status=307, Location="/end")
        for path, last in (
            ("/there", other),
            ("/there-and-back", other_server),
            ("/same", other_server),
        ):
            request = OutgoingRequest(other_server.url(path), "GET", HEADERS)
            with fetch(request, LOOPBACK, limits=LIMITS) as answer:
                assert b"".join(answer.chunks) == b"end"
            own = {name for name in last.seen[-1][2] if name in HEADERS and name != "Host"}
            is_same = path == "/same"
            assert own == (set(HEADERS) - {"Host"} if is_same else {"Accept-Language"})
            assert (last.seen[-1][2]["Host"] == "own.example.com") is is_same


@pytest.mark.parametrize(
    ("method", "status", "last"),
    [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("PUT", 303, "GET"),
        ("HEAD", 303, "HEAD"),
        ("PUT", 302, "PUT"),
        ("DELETE", 301, "DELETE"),
        ("POST", 307, "POST"),
        ("PATCH", 308, "PATCH"),
    ],
)
def test_a_redirect_changes_the_method_as_in_a_browser(
    other_server: Source, method: str, status: int, last: str
) -> None:
    other_server.page("/end", b"")
    other_server.page("/from", status=status, Location="/end")
    body = None if method == "HEAD" else b"body"
    request = OutgoingRequest(
        other_server.url("/from"), method, {"Content-Type": "text/plain"}, body
    )
    with fetch(request, LOOPBACK, limits=LIMITS):
        pass
    seen_method, path, headers = other_server.seen[-1]
    assert (seen_method, path) == (last, "/end")
    has_body = last in ("PUT", "POST", "PATCH", "DELETE")
    assert ("Content-Type" in headers, headers.get("Content-Length") == "4") == (
        has_body or method == "HEAD",
        has_body,
    )


@pytest.mark.parametrize(("method", "status"), [("POST", 307), ("POST", 308), ("PUT", 302)])
def test_another_origin_is_not_sent_the_body(
    other_server: Source, method: str, status: int
) -> None:
    with source() as other:
        other_server.page("/away", status=status, Location=other.url("/end"))
        request = OutgoingRequest(other_server.url("/away"), method, {}, b"secret")
        with (
            pytest.raises(AddressDenied, match="not sent the body"),
            fetch(request, LOOPBACK, limits=LIMITS),
        ):
            pass
        assert other.seen == []


def test_a_redirect_that_is_not_followed_is_the_response(other_server: Source) -> None:
    url = other_server.page("/away", b"moved", 302, Location="/end")
    request = OutgoingRequest(url, follows_redirects=False)
    with fetch(request, LOOPBACK, limits=LIMITS) as answer:
        assert (answer.status, b"".join(answer.chunks)) == (302, b"moved")


HOSTS = AddressFilter(
    allowed=[ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")],
    hosts=["api.example.com", "*.example.org", "::1", "xn--gre-6ka8l.de", "*.xn--grn-ioa.de"],
)


@pytest.mark.parametrize(
    "host",
    [
        "api.example.com", "API.Example.com.", "a.example.org", "a.b.example.org", "[::1]",
        "api。example.com", "grüße.de", "xn--gre-6ka8l.de", "a.GRÜN.de",
    ],
)  # fmt: skip
def test_hosts_of_a_list_are_asked(host: str) -> None:
    address = ipaddress.ip_address("192.0.2.1")
    target = parse_target(f"http://{host}/")
    assert checked_addresses(target, HOSTS, lambda host, port: [address]) == [address]


@pytest.mark.parametrize(
    "host",
    [
        "example.org", "example.com", "xapi.example.com", "aexample.org", "127.0.0.1",
        "api.example.com.evil.com",
    ],
)  # fmt: skip
def test_hosts_beside_a_list_are_not_even_resolved(host: str) -> None:
    def resolve(host: str, port: int) -> Sequence[Address]:
        raise AssertionError(host)

    with pytest.raises(AddressDenied):
        checked_addresses(parse_target(f"http://{host}/"), HOSTS, resolve)


def test_an_answer_may_have_so_many_bytes_and_no_more(other_server: Source) -> None:
    url = other_server.page("/big", b"x" * 1000)
    assert len(get(url, limits=FetchLimits(5, 1000))[1]) == 1000
    with pytest.raises(ResponseTooLarge):
        get(url, limits=FetchLimits(5, 999))


def test_packed_bytes_are_unpacked_and_counted_unpacked(other_server: Source) -> None:
    small = other_server.page("/small", gzip.compress(b"hello" * 10), Content_Encoding="gzip")
    assert get(small)[1] == b"hello" * 10
    bomb = other_server.page("/bomb", gzip.compress(b"\0" * 50_000_000), Content_Encoding="gzip")
    with pytest.raises(ResponseTooLarge):
        get(bomb)
    for path, body, coding in (
        ("/cut", gzip.compress(b"x" * 999)[:-9], "gzip"),
        ("/no", b"x", "gzip"),
        ("/br", b"", "br"),
    ):
        with pytest.raises(FetchError):
            get(other_server.page(path, body, Content_Encoding=coding))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
    ids=["nothing", "nonsense", "short", "cut chunk", "bad chunk", "many headers", "long header"],
)
def test_an_answer_that_is_none_or_breaks_off_has_failed(raw: bytes) -> None:
    with raw_source(raw) as url, pytest.raises(FetchError):
        get(url)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"\r\nContent-Length: 0\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b""),
    ],
    ids=["head", "body"],
)
def test_an_answer_that_drips_ends_at_the_deadline(start: bytes, end: bytes) -> None:
    """Without a deadline it would be whole, after five seconds."""
    with (
        raw_source(start, *[b"x"] * 100, end, pause=0.05) as url,
        pytest.raises(FetchError),
    ):
        get(url, limits=FetchLimits(0.5, 1000))


def test_nobody_there_has_failed() -> None:
    with pytest.raises(FetchError, match="reached"):
        get("http://127.0.0.1:1/")


def certificate(folder: Path, name: str) -> Path:
    """Make a certificate for a name, and return the file that holds it with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(
            subject, subject, key.public_key(), 1, now - timedelta(1), now + timedelta(1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_certificate_is_checked_by_the_name_though_the_connection_goes_to_the_address(
    tmp_path: Path,
) -> None:
    path = certificate(tmp_path, "files.example.com")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    ssl_context = ssl.create_default_context(cafile=str(path))

    def resolve(host: str, port: int) -> list[Address]:
        return [ipaddress.ip_address("127.0.0.1")]

    with source(context) as server:
        server.page("/x", b"secret")
        there = f"https://files.example.com:{server.port}/x"
        assert get(there, resolve=resolve, ssl_context=ssl_context)[1] == b"secret"
        for url, believed in (
            (f"https://other.example.com:{server.port}/x", ssl_context),
            (there, None),
        ):
            with pytest.raises(FetchError, match="certificate"):
                get(url, resolve=resolve, ssl_context=believed)
