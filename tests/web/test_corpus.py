"""Well-formed and malformed requests, each sent whole and byte by byte."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from http.client import HTTPException

import pytest

from tests.web.ambiguous import AMBIGUOUS
from tests.web.corpus import CASES, WireCase
from tests.web.servers import Running, running
from tests.web.test_clients import HALF_A_BODY, HALF_A_HEAD
from tests.web.wire import Wire

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def whole(wire: Wire, data: bytes) -> None:
    wire.send(data)


def byte_by_byte(wire: Wire, data: bytes) -> None:
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for position in range(len(data)):
        wire.send(data[position : position + 1])


@pytest.mark.parametrize("send", [whole, byte_by_byte], ids=["whole", "byte by byte"])
@pytest.mark.parametrize("case", CASES + AMBIGUOUS, ids=[case.name for case in CASES + AMBIGUOUS])
def test_a_request_is_answered_and_never_leaves_a_desynchronised_connection(
    server: Running, case: WireCase, send: Callable[[Wire, bytes], None]
) -> None:
    with server.connect(10) as wire:
        try:
            send(wire, case.sent)
        except (BrokenPipeError, ConnectionResetError):
            assert not case.kept  # it was refused before its end
        answers = [wire.answer() for _ in case.statuses]
        assert [answer.status for answer in answers] == list(case.statuses)
        if case.size is not None:
            assert answers[0].json()["size"] == case.size
        if case.kept:
            assert answers[-1].keeps
            assert wire.get("/probe").json()["PATH_INFO"] == "/probe"
        else:
            assert wire.is_ended()


def test_a_target_reads_the_same_in_both_forms(server: Running) -> None:
    with server.connect() as wire:
        environ = wire.get("/a%2Fb%20c?d=%2F").json()
        assert (environ["PATH_INFO"], environ["RAW_URI"], environ["QUERY_STRING"]) == (
            "/a/b c",
            "/a%2Fb%20c?d=%2F",
            "d=%2F",
        )
        environ = wire.get("http://other/e%2F?f").json()
        assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == ("/e/", "f")


def test_headers_reach_the_application_under_their_names_and_no_other(server: Running) -> None:
    with server.connect() as wire:
        headers = {
            "X-Forwarded-For": "192.0.2.1",
            "X_Forwarded_For": "192.0.2.2",
            "Accept": "a",
            "accept": "b",
            "X-Padded": " \t c d \t ",
        }
        environ = wire.get("/", **headers).json()["headers"]
    assert environ["HTTP_X_FORWARDED_FOR"] == "192.0.2.1"
    assert environ["HTTP_ACCEPT"] == "a,b"
    assert environ["HTTP_X_PADDED"] == "c d"


def test_no_answer_names_the_version_of_the_server(server: Running) -> None:
    with server.connect() as wire:
        wire.send(b"\0\0\0\r\n\r\n")
        assert "/" not in wire.answer().headers.get("server", "")


@pytest.mark.parametrize("target", ["/broken", "/short"])
def test_an_answer_that_breaks_off_never_looks_whole(server: Running, target: str) -> None:
    with server.connect() as wire, pytest.raises((HTTPException, OSError)):
        wire.get(target)


def test_a_fault_of_the_application_is_500_and_no_more(server: Running) -> None:
    with server.connect() as wire:
        assert wire.get("/fault").status == 500
    with server.connect() as wire:
        assert wire.get("/").status == 200


def test_a_proxy_on_this_machine_decides_whether_the_scheme_is_https(server: Running) -> None:
    with server.connect() as wire:
        assert wire.get("/").json()["wsgi.url_scheme"] == "http"
        assert wire.get("/", **{"X-Forwarded-Proto": "https"}).json()["wsgi.url_scheme"] == "https"


def test_the_environment_of_the_process_is_not_in_that_of_a_request(server: Running) -> None:
    with server.connect() as wire:
        assert not {"PATH", "DATA_DIR", "PYTHONPATH"}.intersection(wire.get("/").json()["keys"])


def test_an_address_may_be_typed_as_people_read_it() -> None:
    with running() as server, server.connect() as wire:
        environ = wire.get("/é?ü=ö").json()
    assert environ["PATH_INFO"].encode("latin-1").decode() == "/é"
    assert environ["QUERY_STRING"] == "%C3%BC=%C3%B6"


def test_the_address_of_a_client_is_that_of_its_connection(server: Running) -> None:
    with server.connect() as wire:
        assert (
            wire.get("/", **{"X-Forwarded-For": "192.0.2.1"}).json()["REMOTE_ADDR"] == "127.0.0.1"
        )


def test_clients_that_are_no_proxy_do_not_decide_the_scheme(server: Running) -> None:
    with (
        running(forwarded_allow_ips="192.0.2.1") as untrusting,
        untrusting.connect() as wire,
    ):
        assert wire.get("/", **{"X-Forwarded-Proto": "https"}).json()["wsgi.url_scheme"] == "http"


def test_a_prefix_of_the_process_is_taken_off_the_path(server: Running) -> None:
    with running(environ={"SCRIPT_NAME": "/cms"}, answers="/cms/") as below:
        with below.connect() as wire:
            environ = wire.get("/cms/a%2Fb").json()
            assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/cms", "/a/b")
        with below.connect() as wire:
            assert wire.get("/other").status == 400


@pytest.mark.parametrize(
    "target",
    ["/large?size=300000", "/stream?size=300000", "/empty?status=204", "/empty?status=304"],
)
def test_answers_without_a_body_leave_the_connection_in_step(server: Running, target: str) -> None:
    with server.connect() as wire:
        for method in ("HEAD", "GET", "HEAD"):
            wire.send(f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = wire.answer(method)
            assert bool(answer.body) == (method == "GET" and "size" in target)
            assert wire.get("/probe").json()["PATH_INFO"] == "/probe", method


@pytest.mark.parametrize("number", [2, 10, 200])
@pytest.mark.parametrize(
    "rest", [b"", HALF_A_HEAD, HALF_A_BODY], ids=["whole", "half a head", "half a body"]
)
def test_a_client_that_half_closes_gets_all_its_answers(
    server: Running, number: int, rest: bytes
) -> None:
    with server.connect(10) as wire:
        for index in range(number):
            wire.send(f"GET /?{index} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wire.send(rest)
        wire.socket.shutdown(socket.SHUT_WR)
        answers = wire.rest()
        queries = [answer.json()["QUERY_STRING"] for answer in answers[:number]]
        assert queries == [str(index) for index in range(number)]
