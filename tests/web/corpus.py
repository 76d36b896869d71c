"""Raw requests as data: what a client sends, and how it is answered.

`statuses` are the answers to what is sent, in their order. `kept` is whether the connection goes
on behind them.
"""

from __future__ import annotations

from dataclasses import dataclass

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
LONG = b"Content-Length: " + b"9" * 30
UTF_8 = "GET /é?ü=ö HTTP/1.1\r\nHost: x\r\n\r\n".encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
SLOW = b"GET /sleep?seconds=0.05 HTTP/1.1\r\nHost: x\r\n\r\n"
CLOSE = b"Connection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class WireCase:
    name: str
    sent: bytes
    statuses: tuple[int, ...]
    kept: bool
    size: int | None = None
    """How many bytes of body the application was given."""


CASES = (
    # Heads
    WireCase("the least", GET + b"\r\n", (200,), kept=True),
    WireCase("HTTP/1.0", b"GET / HTTP/1.0\r\n\r\n", (200,), kept=False),
    WireCase(
        "HTTP/1.0 that keeps",
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        (200,),
        kept=True,
    ),
    WireCase("a client that ends", GET + b"Connection: close\r\n\r\n", (200,), kept=False),
    WireCase("two in a row", (GET + b"\r\n") * 2, (200, 200), kept=True),
    # All that a client asked for before it ended, or went wrong, is answered.
    WireCase(
        "an end behind other requests, and another one",
        SLOW + GET + b"\r\n" + GET + CLOSE + GET + b"\r\n",
        (200, 200, 200),
        kept=False,
    ),
    WireCase("an end and an empty line", SLOW + GET + CLOSE + b"\r\n", (200, 200), kept=False),
    WireCase(
        "requests, and then none",
        SLOW + GET + b"\r\n" + GET + b"\r\n" + b"nothing\r\n\r\n",
        (200, 200, 200),
        kept=False,
    ),
    WireCase("a line before the request", b"\r\n" + GET + b"\r\n", (200,), kept=True),
    WireCase(
        "an absolute target",
        b"GET http://other/a?b=c HTTP/1.1\r\nHost: x\r\n\r\n",
        (200,),
        kept=True,
    ),
    WireCase("a target that is no path", b"GET a HTTP/1.1\r\nHost: x\r\n\r\n", (400,), kept=False),
    WireCase("an asterisk", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", (200,), kept=True),
    WireCase("escapes", b"GET /a%2Fb%20c%zz?d=%2F HTTP/1.1\r\nHost: x\r\n\r\n", (200,), kept=True),
    WireCase(
        "a target in UTF-8",
        "GET /é?ü=ö HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        (200,),
        kept=True,
    ),
    WireCase(
        "an unknown method",
        b"FETCH / HTTP/1.1\r\nHost: x\r\n\r\n",
        (400,),
        kept=False,
    ),
    WireCase(
        "SEARCH",
        b"SEARCH / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        (200,),
        kept=True,
        size=2,
    ),
    WireCase("no version", b"GET /\r\n\r\n", (400,), kept=False),
    WireCase("another protocol", b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", (400,), kept=False),
    WireCase("a space in the target", b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", (400,), kept=False),
    WireCase("line feeds alone", b"GET / HTTP/1.1\nHost: x\n\n", (400,), kept=False),
    WireCase("a space before the colon", GET + b"A : b\r\n\r\n", (400,), kept=False),
    WireCase("a folded header", GET + b"A: b\r\n c\r\n\r\n", (400,), kept=False),
    WireCase("a zero byte in a header", GET + b"A: b\0c\r\n\r\n", (400,), kept=False),
    WireCase("a header without a name", GET + b": b\r\n\r\n", (400,), kept=False),
    WireCase("a header without a colon", GET + b"nothing\r\n\r\n", (400,), kept=False),
    WireCase(
        "bytes that are no text",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        (400,),
        kept=False,
    ),
    WireCase(
        "a head of 40 KB",
        GET + b"".join(b"A%d: %b\r\n" % (n, b"x" * 4000) for n in range(10)) + b"\r\n",
        (200,),
        kept=True,
    ),
    WireCase(
        "a head of 70 KB",
        GET + b"".join(b"A%d: %b\r\n" % (n, b"x" * 7000) for n in range(10)) + b"\r\n",
        (431,),
        kept=False,
    ),
    WireCase(
        "an upgrade to another protocol",
        GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        (200,),
        kept=True,
    ),
    # Bodies
    WireCase("a body", POST + b"Content-Length: 5\r\n\r\nhello", (200,), kept=True, size=5),
    WireCase("no body", POST + b"Content-Length: 0\r\n\r\n", (200,), kept=True, size=0),
    WireCase("a body of a GET", GET + b"Content-Length: 5\r\n\r\nhello", (200,), kept=True, size=5),
    WireCase(
        "a body and a request behind it",
        POST + b"Content-Length: 5\r\n\r\nhello" + GET + b"\r\n",
        (200, 200),
        kept=True,
    ),
    WireCase("a negative length", POST + b"Content-Length: -5\r\n\r\nhello", (400,), kept=False),
    WireCase("a length with a sign", POST + b"Content-Length: +5\r\n\r\nhello", (400,), kept=False),
    WireCase(
        "a length that is no number",
        POST + b"Content-Length: five\r\n\r\nhello",
        (400,),
        kept=False,
    ),
    WireCase("an empty length", POST + b"Content-Length: \r\n\r\n", (400,), kept=False),
    WireCase(
        "a length of 30 digits",
        POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
        (400,),
        kept=False,
    ),
    WireCase(
        "two lengths",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        (400,),
        kept=False,
    ),
    WireCase(
        "a length and chunks",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        (400,),
        kept=False,
    ),
    WireCase("chunks", CHUNKED + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", (200,), kept=True, size=6),
    WireCase(
        "chunks with an extension",
        CHUNKED + b"5;a=b\r\nhello\r\n0\r\n\r\n",
        (200,),
        kept=True,
        size=5,
    ),
    WireCase(
        "chunks with a trailer",
        CHUNKED + b"5\r\nhello\r\n0\r\nA: b\r\n\r\n",
        (200,),
        kept=True,
        size=5,
    ),
    WireCase("no chunks", CHUNKED + b"0\r\n\r\n", (200,), kept=True, size=0),
    WireCase(
        "chunks and a request behind them",
        CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + GET + b"\r\n",
        (200, 200),
        kept=True,
    ),
    WireCase("a chunk of no size", CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n", (400,), kept=False),
    WireCase(
        "a chunk of a negative size", CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n", (400,), kept=False
    ),
    WireCase("a chunk that is longer", CHUNKED + b"2\r\nhello\r\n0\r\n\r\n", (400,), kept=False),
    WireCase(
        "chunks in another coding",
        POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
        (400,),
        kept=False,
    ),
    WireCase(
        "an unknown coding",
        POST + b"Transfer-Encoding: squeezed\r\n\r\n",
        (400,),
        kept=False,
    ),
    WireCase(
        "an expectation",
        POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
        (200,),
        kept=True,
    ),
)
