"""Raw requests that a proxy in front might read otherwise than the service,
which is how requests are smuggled.
"""

from __future__ import annotations

from tests.web.corpus import CHUNKED, GET, POST, WireCase

HELLO = b"5\r\nhello\r\n0\r\n\r\n"


def refused(name: str, sent: bytes) -> WireCase:
    return WireCase(name, sent, (400,), kept=False)


def coded(coding: bytes, *more: bytes) -> bytes:
    """A request in chunks with this transfer coding."""
    return b"".join([POST, b"Transfer-Encoding: ", coding, b"\r\n", *more, b"\r\n", HELLO])


def sized(length: bytes, name: bytes = b"Content-Length: ") -> bytes:
    return POST + name + length + b"\r\n\r\nhello"


def many(number: int) -> bytes:
    return GET + b"".join(b"A%d: b\r\n" % index for index in range(number)) + b"\r\n"


UPGRADE = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "
    b"AAMAAABkAARAAAAAAAIAAAAA\r\n"
)
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: "
    b"eA==\r\nSec-WebSocket-Version: 13\r\n"
)

AMBIGUOUS = (
    # Where a body ends
    refused("chunks and a length", coded(b"chunked", b"Content-Length: 5\r\n")),
    refused(
        "an almost chunked coding and a length",
        coded(b"xchunked", b"Content-Length: 5\r\n"),
    ),
    refused("a coding with a letter more in front", coded(b"xchunked")),
    refused("a coding with a letter more behind", coded(b"chunkedx")),
    refused("a coding in quotes", coded(b'"chunked"')),
    refused("a coding behind a vertical tab", coded(b"\x0bchunked")),
    refused("a coding with a parameter", coded(b"chunked;q=1")),
    refused("no coding at all", coded(b"")),
    refused("chunked twice in one header", coded(b"chunked, chunked")),
    refused("chunked in two headers", coded(b"chunked", b"Transfer-Encoding: chunked\r\n")),
    refused("chunked and then identity", coded(b"chunked", b"Transfer-Encoding: identity\r\n")),
    refused("a folded coding", POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + HELLO),
    refused("a coding before the colon", POST + b"Transfer-Encoding : chunked\r\n\r\n" + HELLO),
    refused("chunks of HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO),
    refused(
        "chunks of HTTP/1.0 that keeps",
        b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO,
    ),
    WireCase("a coding in capitals", coded(b"CHUNKED"), (200,), kept=True, size=5),
    WireCase(
        "a length that passes for one",
        sized(b"9", b"Content-Length: 5\r\nContent_Length: "),
        (200,),
        kept=True,
        size=5,
    ),
    refused("the same length twice", sized(b"5", b"Content-Length: 5\r\nContent-Length: ")),
    refused("two lengths in one header", sized(b"5, 5")),
    refused("two lengths without a comma", sized(b"5 5")),
    refused("a length in hexadecimal", sized(b"0x5")),
    refused("a length with an underscore", sized(b"0_5")),
    refused("a length in other digits", sized("٥".encode())),
    refused("a length behind a space", POST + b" Content-Length: 5\r\n\r\nhello"),
    refused("a length before a space", sized(b"5", b"Content-Length : ")),
    refused("a length of more than 64 bits", sized(b"18446744073709551621")),
    WireCase("chunked between spaces", coded(b" \t chunked "), (200,), kept=True, size=5),
    WireCase("a length with zeros in front", sized(b"005"), (200,), kept=True, size=5),
    WireCase("a length between spaces", sized(b"  5  "), (200,), kept=True, size=5),
    # Chunks
    refused("a chunk with a prefix", CHUNKED + b"0x" + HELLO),
    refused("a chunk with a sign", CHUNKED + b"+" + HELLO),
    refused("a chunk behind a space", CHUNKED + b" " + HELLO),
    refused("a chunk before a space", CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n"),
    refused("a chunk with a line feed alone", CHUNKED + b"5\nhello\r\n0\r\n\r\n"),
    refused("a chunk that ends with a line feed alone", CHUNKED + b"5\r\nhello\n0\r\n\r\n"),
    refused("an extension with a line feed", CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
    refused("an extension with a return", CHUNKED + b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
    refused("an extension with a zero byte", CHUNKED + b"5;a=\0\r\nhello\r\n0\r\n\r\n"),
    refused(
        "a chunk of more than 64 bits",
        CHUNKED + b"ffffffffffffffff0\r\nhello\r\n0\r\n\r\n",
    ),
    refused("a trailer with a length", CHUNKED + b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n"),
    refused(
        "a trailer with a coding",
        CHUNKED + b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    refused("a trailer with a line feed alone", CHUNKED + b"5\r\nhello\r\n0\r\nA: b\n\r\n"),
    refused(
        "an extension of 200 KB", CHUNKED + b"5;a=" + b"x" * 200_000 + b"\r\nhello\r\n0\r\n\r\n"
    ),
    refused(
        "a trailer of 200 KB",
        CHUNKED + b"5\r\nhello\r\n0\r\nA: " + b"x" * 200_000 + b"\r\n\r\n",
    ),
    WireCase(
        "2,000 chunks of a byte",
        CHUNKED + b"1\r\nx\r\n" * 2_000 + b"0\r\n\r\n",
        (200,),
        kept=True,
        size=2_000,
    ),
    # Heads
    refused("a line feed alone in a head", GET + b"A: b\nB: c\r\n\r\n"),
    refused("a line feed alone at its end", GET + b"\n"),
    refused("a return alone in a head", GET + b"A: b\rB: c\r\n\r\n"),
    refused("a zero byte in a name", GET + b"A\0: b\r\n\r\n"),
    refused("a zero byte in a target", b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n"),
    refused("a first header behind a space", b"GET / HTTP/1.1\r\n Host: x\r\n\r\n"),
    refused("two hosts", GET + b"Host: y\r\n\r\n"),
    refused(
        "two types of a body",
        POST + b"Content-Type: a/b\r\nContent-Type: c/d\r\nContent-Length: 0\r\n\r\n",
    ),
    refused("a head of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    refused("the line of a proxy", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + GET + b"\r\n"),
    WireCase("200 headers", many(200), (200,), kept=True),
    WireCase("4,000 headers", many(4_000), (431,), kept=False),
    WireCase("10,000 headers", GET + b"a:\r\n" * 10_000 + b"\r\n", (431,), kept=False),
    WireCase(
        "a header of 9 KB",
        GET + b"A: " + b"x" * 9_000 + b"\r\n\r\n",
        (200,),
        kept=True,
    ),
    WireCase(
        "a target of 9 KB",
        b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        (200,),
        True,
    ),
    WireCase(
        "a header that would move the application",
        GET + b"SCRIPT_NAME: /a\r\n\r\n",
        (200,),
        kept=True,
    ),
    # What parsers take for harmless (docs/deployment.md)
    WireCase(
        "empty lines before a request",
        b"\r\n\r\n" + GET + b"\r\n",
        (200,),
        kept=True,
    ),
    WireCase(
        "two spaces behind the method",
        b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        (200,),
        kept=True,
    ),
    WireCase(
        "an asterisk of a GET",
        b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        (200,),
        kept=True,
    ),
    WireCase("a protocol of films", b"OPTIONS / RTSP/1.0\r\n\r\n", (200,), kept=False),
    refused("a tunnel", b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"),
    refused("a port that cannot be", b"GET http://x:99999/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    refused("HTTP/1.2", b"GET / HTTP/1.2\r\nHost: x\r\n\r\n"),
    refused("spaces in an extension", CHUNKED + b"5; a=b\r\nhello\r\n0\r\n\r\n"),
    WireCase(
        "an end among other words",
        GET + b"Connection: close, x\r\n\r\n",
        (200,),
        kept=False,
    ),
    refused("a coding before chunked", coded(b"gzip, chunked")),
    refused(
        "a coding before chunked in a header of its own",
        coded(b"x", b"Transfer-Encoding: chunked\r\n"),
    ),
    WireCase(
        "schemes that contradict each other",
        GET + b"X-Forwarded-Proto: https\r\nX-Forwarded-Ssl: off\r\n\r\n",
        (200,),
        kept=True,
    ),
    # Expectations and other protocols
    WireCase(
        "another expectation",
        POST + b"Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello",
        (200,),
        kept=True,
    ),
    WireCase(
        "an expectation of no body",
        POST + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
        (200,),
        kept=True,
    ),
    WireCase(
        "an expectation of HTTP/1.0",
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        (200,),
        False,
        5,
    ),
    WireCase("another protocol is offered", GET + UPGRADE + b"\r\n", (200,), kept=True),
    WireCase(
        "another protocol, and a body",
        POST + UPGRADE + b"Content-Length: 5\r\n\r\nhello",
        (200,),
        kept=True,
        size=5,
    ),
    WireCase(
        "another protocol, and chunks",
        POST + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n" + HELLO,
        (200,),
        True,
        5,
    ),
    WireCase(
        "another protocol, and a second request",
        GET + UPGRADE + b"\r\n" + GET + b"\r\n",
        (200, 200),
        kept=True,
    ),
    WireCase("a WebSocket", GET + WEBSOCKET + b"\r\n", (200,), kept=True),
)
