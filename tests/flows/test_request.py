"""The operation request: what is sent, what comes back, and what is never asked."""

from __future__ import annotations

import base64
import ipaddress
import json
import time
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from cms.config import Config
from cms.flows.operations import request as requests
from cms.flows.queued_runs import delete_old_runs
from cms.flows.run import Rejected, Run, Services
from tests.files.sources import Source, raw_source
from tests.flows.runs import do, new_run, rejection, services_of
from tests.people import person
from tests.things import Stage

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LOOPBACK = (ipaddress.ip_network("127.0.0.1/32"),)


@dataclass
class Received:
    """What a page was asked."""

    method: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@pytest.fixture(scope="module")
def services(stage: Stage, settings: Config) -> Services:
    return services_of(stage, settings, import_ip_allow_list=LOOPBACK)


def echo(server: Source, path: str, status: int = 200) -> tuple[str, Received]:
    """Have a path answer `{"ok": true}`, and return its address and what it will be asked."""
    received = Received()

    def answer(handler: Any) -> None:
        received.method = handler.command
        received.headers = {name.lower(): value for name, value in handler.headers.items()}
        received.body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        handler.send_response(status, "As told")
        handler.send_header("Content-Type", "application/json; charset=utf-8")
        handler.send_header("Content-Length", "12")
        handler.end_headers()
        handler.wfile.write(b'{"ok": true}')

    server.pages[path] = answer
    return server.url(path), received


def test_the_answer_has_status_headers_and_data(run: Run, other_server: Source) -> None:
    url, received = echo(other_server, "/echo", 201)
    result = do(run, "request", url=url)
    assert (result["status"], result["statusText"]) == (201, "As told")
    assert result["data"] == {"ok": True}
    assert result["headers"]["content-type"] == "application/json; charset=utf-8"
    assert received.method == "GET"


def test_a_request_has_any_method_and_blanks_in_its_address(run: Run, other_server: Source) -> None:
    url, received = echo(other_server, "/two%20words")
    result = do(run, "request", method="propfind", url=url.replace("%20", " "))
    assert (result["status"], received.method) == (200, "PROPFIND")


@pytest.mark.parametrize(
    ("body", "sent", "media_type"),
    [
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode(), "application/json"),
        ([], b"[]", "application/json"),
        ('{"a": 1}', b'{"a": 1}', "application/json"),
        ("plain", b"plain", "text/plain; charset=utf-8"),
        (5, b"5", "application/json"),
        (None, b"", None),
    ],
)
def test_a_body_is_sent_with_its_type(
    run: Run, other_server: Source, body: object, sent: bytes, media_type: str | None
) -> None:
    url, received = echo(other_server, "/echo")
    do(run, "request", url=url, method="post", body=body)
    assert (received.method, received.body) == ("POST", sent)
    assert received.headers.get("content-type") == media_type


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Own": "one", "content-type": "text/csv"},
        [{"header": "X-Own", "value": "one"}, {"header": "content-type", "value": "text/csv"}],
    ],
)
def test_headers_are_an_object_or_a_list(run: Run, other_server: Source, headers: object) -> None:
    url, received = echo(other_server, "/echo")
    do(run, "request", url=url, method="POST", headers=headers, body="a,b")
    assert (received.headers["x-own"], received.headers["content-type"]) == ("one", "text/csv")


def test_headers_of_another_request_may_be_passed_on(run: Run, other_server: Source) -> None:
    url, received = echo(other_server, "/echo")
    headers = {"host": "inner.example.com", "content-length": "5", "X-Own": "one"}
    headers["transfer-encoding"] = "chunked"
    do(run, "request", url=url, method="POST", headers=headers, body="longer than five")
    assert received.body == b"longer than five"
    assert received.headers["host"] == url.split("/")[2]
    assert received.headers["x-own"] == "one"
    assert "transfer-encoding" not in received.headers


@pytest.mark.parametrize(
    ("content", "media_type", "data"),
    [
        (b"", "text/plain", None),
        (b"caf\xe9", "text/plain; charset=latin-1", "café"),
        (b"caf\xe9", "text/plain; charset=unknown", "caf\ufffd"),
        (b"a\0b", "application/octet-stream", "a\ufffdb"),
        (b"caf\xe9", "text/plain; charset=idna", "caf\ufffd"),
        (b"caf\xe9", "text/plain; charset=undefined", "caf\ufffd"),
        (b"+2AA-", "text/plain; charset=utf-7", "+2AA-"),
        (b"6869", "text/plain; charset=hex", "6869"),
        (b"{broken", "application/json", "{broken"),
        (b'"\\u0000"', "application/json", '"\\u0000"'),
        (b"[" * 5000, "application/json", "[" * 5000),
        (b'{"a": 1}', "text/html", '{"a": 1}'),
        (b'{"n": 12345678901234567890}', "application/hal+json", {"n": 12345678901234567890}),
    ],
)
def test_data_is_read_by_its_type(
    run: Run, other_server: Source, content: bytes, media_type: str, data: object
) -> None:
    url = other_server.page("/data", content, Content_Type=media_type)
    assert do(run, "request", url=url)["data"] == data


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_an_error_rejects_with_the_same_shape(run: Run, other_server: Source, status: int) -> None:
    url = other_server.page("/error", b"no", status)
    with pytest.raises(Rejected) as rejected:
        do(run, "request", url=url)
    result = rejected.value.result
    assert isinstance(result, dict)
    assert set(result) == {"status", "statusText", "headers", "data"}
    assert (result["status"], result["data"]) == (status, "no")
    assert rejected.value.is_transient is (status in (429, 500, 503))


def test_a_server_that_does_not_answer_rejects_with_the_same_shape(run: Run) -> None:
    result = rejection(run, "request", url="http://127.0.0.1:1/")
    assert result == {
        "status": None,
        "statusText": "it cannot be reached",
        "headers": {},
        "data": None,
    }


@pytest.mark.parametrize(
    "host", ["127.0.0.2", "10.0.0.1", "169.254.169.254", "[::1]", "0x7f000002", "localhost."]
)
def test_inner_addresses_are_never_asked(stage: Stage, settings: Config, host: str) -> None:
    run = new_run(services_of(stage, settings))
    result = rejection(run, "request", url=f"http://{host}:9/")
    assert (result["status"], result["statusText"]) == (
        None,
        "the host is not known, or not one that may be asked",
    )


def test_an_unknown_host_may_be_known_later(run: Run) -> None:
    with pytest.raises(Rejected) as rejected:
        do(run, "request", url="http://no-such-host.invalid/")
    assert rejected.value.is_transient


def test_redirects_are_followed_and_checked_again(run: Run, other_server: Source) -> None:
    target = other_server.page("/target", b"here", Content_Type="text/plain")
    other_server.page("/from", status=302, Location="/target")
    other_server.page("/inner", status=302, Location="http://169.254.169.254/")
    other_server.page("/round", status=302, Location="/round")
    assert target
    assert do(run, "request", url=other_server.url("/from"))["data"] == "here"
    inner = rejection(run, "request", url=other_server.url("/inner"))
    assert "may be asked" in inner["statusText"]
    assert "redirects" in rejection(run, "request", url=other_server.url("/round"))["statusText"]


def test_size_and_time_have_a_limit(
    run: Run, other_server: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_RESPONSE_BYTES", 1000)
    large = rejection(run, "request", url=other_server.page("/large", b"x" * 1001))
    assert "more than" in large["statusText"]
    monkeypatch.setattr(requests, "MAX_SECONDS", 0.5)
    # Without a deadline it would be whole, after five seconds.
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    with raw_source(head, *[b"x"] * 100, pause=0.05) as dripping:
        assert rejection(run, "request", url=dripping)["status"] is None


def test_only_named_hosts_are_asked(stage: Stage, settings: Config, other_server: Source) -> None:
    allowed = {"import_ip_allow_list": LOOPBACK, "flows_request_allow_list": ("localhost",)}
    run = new_run(services_of(stage, settings, **allowed))
    url, _ = echo(other_server, "/echo")
    other_server.page("/away", status=302, Location=url)
    named = other_server.url("/echo", "localhost")
    assert do(run, "request", url=named)["status"] == 200
    for denied in (url, other_server.url("/away", "localhost")):
        with pytest.raises(Rejected) as rejected:
            do(run, "request", url=denied)
        assert "may be asked" in str(rejected.value)
        assert not rejected.value.is_transient


@pytest.mark.parametrize("line", [b"HTTP/1.1 200 a\0b", b"HTTP/1.1 200 OK\r\nX-Own: a\0b"])
def test_what_cannot_be_stored_of_an_answer_is_replaced(run: Run, line: bytes) -> None:
    with raw_source(line + b"\r\nContent-Length: 0\r\n\r\n") as url:
        result = do(run, "request", url=url)
    assert "a\ufffdb" in (result["statusText"], result["headers"].get("x-own"))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nclosed early",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    ],
)
def test_an_answer_that_breaks_off_may_be_whole_later(run: Run, answer: bytes) -> None:
    with raw_source(answer) as url, pytest.raises(Rejected) as rejected:
        do(run, "request", url=url)
    assert rejected.value.is_transient


# Signed requests


@pytest.fixture
def flow(stage: Stage, run: Run) -> Run:
    """A run of a stored flow, at its one operation."""
    body = {"name": "Sync", "trigger": "webhook", "options": {}}
    flow = stage.admin.post("/flows", body).data["id"]
    body = {"flow": flow, "key": "send", "type": "log", "options": {"message": "x"}}
    run.flow = flow
    run.operation = stage.admin.post("/operations", body).data["id"]
    run.id = str(uuid.uuid4())
    return run


def signed(url: str, **options: Any) -> dict[str, Any]:
    return {
        "url": url,
        "method": "POST",
        "body": {"title": "ü"},
        "sign": True,
        "secret": SECRET,
        **options,
    }


def deliveries(stage: Stage, run: Run) -> Any:
    return stage.value(
        "SELECT json_agg(json_build_array(url, attempt, status, reason) ORDER BY id) "
        f"FROM system_flow_deliveries WHERE operation = '{run.operation}'"
    )


def test_the_reference_library_verifies_what_a_server_gets(flow: Run, other_server: Source) -> None:
    url, received = echo(other_server, "/hook")
    do(flow, "request", **signed(url))
    verified = Webhook(SECRET).verify(received.body, received.headers)
    assert verified == {"title": "ü"}


def test_all_attempts_of_a_run_have_the_same_id(flow: Run, other_server: Source) -> None:
    url, received = echo(other_server, "/hook")
    messages = []
    for number, run_id in enumerate([flow.id, flow.id, str(uuid.uuid4()), None, None]):
        flow.attempt = number + 1
        flow.id = run_id
        do(flow, "request", **signed(url))
        messages.append(received.headers["webhook-id"])
    assert messages[0] == messages[1]
    assert len(set(messages)) == 4


def test_every_delivery_is_logged_without_the_query(
    stage: Stage, flow: Run, other_server: Source
) -> None:
    url, _ = echo(other_server, "/hook")
    do(flow, "request", **signed(f"{url}?key=secret"))
    flow.attempt = 2
    bad = other_server.page("/bad", b"", 500)
    rejection(flow, "request", **signed(bad))
    rejection(flow, "request", **signed("http://127.0.0.1:1/x"))
    assert deliveries(stage, flow) == [
        [f"{url}?…", 1, 200, None],
        [bad, 2, 500, "Internal Server Error"],
        ["http://127.0.0.1:1/x", 2, None, "it cannot be reached"],
    ]


def test_a_signed_request_follows_no_redirect(
    stage: Stage, flow: Run, other_server: Source
) -> None:
    url, received = echo(other_server, "/hook")
    for status in (301, 307):
        away = other_server.page(f"/away{status}", b"", status, Location=url)
        assert rejection(flow, "request", **signed(away))["status"] == status
    assert received.headers == {}
    assert [entry[2] for entry in deliveries(stage, flow)] == [301, 307]


@pytest.mark.parametrize(
    ("url", "logged"),
    [
        ("http://[", "(no address)"),
        ("http://ada:hunter2@127.0.0.1:1/x?key=hunter2", "http://127.0.0.1:1/x?…"),
        ("http://127.0.0.1:99999/", "http://127.0.0.1:99999/"),
        ("http://" + "a" * 5000, "http://" + "a" * 1993),
    ],
)
def test_an_address_that_is_none_is_a_failure_that_stays(
    stage: Stage, flow: Run, url: str, logged: str
) -> None:
    with pytest.raises(Rejected):
        do(flow, "request", **signed(url))
    assert deliveries(stage, flow)[0][0] == logged
    age_outage(stage, flow, timedelta(days=9))
    for _ in range(9):
        rejection(flow, "request", **signed(url))
    assert status(stage, flow) == "inactive"
    message = stage.value("SELECT message FROM system_notifications ORDER BY id DESC")
    assert "hunter2" not in message


def test_the_log_of_deliveries_masks_what_the_log_of_the_run_masks(
    stage: Stage, flow: Run, other_server: Source
) -> None:
    url, _ = echo(other_server, "/hooks/hunter2-path")
    flow.secrets.add("hunter2-path")
    do(flow, "request", **signed(url))
    with raw_source(b"HTTP/1.1 500 no hunter2-path " + b"x" * 5000 + b"\r\n\r\n") as bad:
        rejection(flow, "request", **signed(bad))
    (good_url, *_), (*_, reason) = deliveries(stage, flow)
    assert good_url == other_server.url("/hooks/**********")
    assert reason.startswith("no ********** xxx")
    assert len(reason) == 500


def test_while_a_secret_is_replaced_receivers_of_both_verify(
    flow: Run, other_server: Source
) -> None:
    url, received = echo(other_server, "/hook")
    new_secret = "whsec_" + base64.b64encode(b"n" * 32).decode()
    do(flow, "request", **signed(url, secret=[new_secret, SECRET]))
    for secret in (SECRET, new_secret):
        assert Webhook(secret).verify(received.body, received.headers) == {"title": "ü"}
    seconds = int(received.headers["webhook-timestamp"])
    assert abs(seconds - time.time()) < 5


def test_a_request_without_a_signature_is_not_logged(
    stage: Stage, flow: Run, other_server: Source
) -> None:
    url, received = echo(other_server, "/hook")
    do(flow, "request", url=url)
    assert "webhook-signature" not in received.headers
    assert deliveries(stage, flow) is None


def status(stage: Stage, run: Run) -> str:
    return str(stage.admin.get(f"/flows/{run.flow}").data["status"])


def test_after_days_of_failure_the_flow_is_switched_off_and_administrators_notified(
    stage: Stage, flow: Run, other_server: Source
) -> None:
    person(stage)  # no administrator: nobody tells this one
    before = stage.value("SELECT count(*) FROM system_notifications")
    bad = signed(other_server.page("/bad", b"", 500))
    for _ in range(12):
        rejection(flow, "request", **bad)
    assert status(stage, flow) == "active"
    age_outage(stage, flow, timedelta(days=4, hours=23))
    rejection(flow, "request", **bad)
    assert status(stage, flow) == "active"
    age_outage(stage, flow, timedelta(hours=2))
    rejection(flow, "request", **bad)
    assert status(stage, flow) == "inactive"
    assert stage.value("SELECT count(*) FROM system_notifications") == before + 1
    text = stage.value("SELECT subject || message FROM system_notifications ORDER BY id DESC")
    assert '"Sync" is switched off' in text
    assert "127.0.0.1" in text
    mail = stage.value(
        "SELECT args -> 'payload' FROM procrastinate_jobs WHERE task_name = 'mail' ORDER BY id DESC"
    )
    assert mail["to"] == ["admin@example.com"]
    # Switched on again, it has as many days once more.
    assert stage.admin.patch(f"/flows/{flow.flow}", {"status": "active"}).status == 200
    rejection(flow, "request", **bad)
    assert status(stage, flow) == "active"


def test_a_success_ends_an_outage(stage: Stage, flow: Run, other_server: Source) -> None:
    bad = signed(other_server.page("/bad", b"", 500))
    url, _ = echo(other_server, "/hook")
    for _ in range(12):
        rejection(flow, "request", **bad)
    age_outage(stage, flow, timedelta(days=9))
    do(flow, "request", **signed(url))
    rejection(flow, "request", **bad)
    assert status(stage, flow) == "active"


def test_two_failures_in_a_week_are_no_outage(
    stage: Stage, flow: Run, other_server: Source
) -> None:
    bad = signed(other_server.page("/bad", b"", 500))
    rejection(flow, "request", **bad)
    age_outage(stage, flow, timedelta(days=9))
    rejection(flow, "request", **bad)
    assert status(stage, flow) == "active"


def test_a_deleted_operation_leaves_no_log(stage: Stage, flow: Run, other_server: Source) -> None:
    url, _ = echo(other_server, "/hook")
    assert stage.admin.delete(f"/flows/{flow.flow}").status == 204
    do(flow, "request", **signed(url))
    rejection(flow, "request", **signed(other_server.page("/bad", b"", 500)))
    assert deliveries(stage, flow) is None


def test_old_deliveries_are_deleted(stage: Stage, flow: Run, other_server: Source) -> None:
    url, _ = echo(other_server, "/hook")
    do(flow, "request", **signed(url))
    do(flow, "request", **signed(f"{url}?later"))
    with stage.side_door.connection() as connection:
        connection.execute(
            b"UPDATE system_flow_deliveries SET timestamp = timestamp - interval '31 days' "
            b"WHERE url = %s",
            [url],
        )
    delete_old_runs(flow.services.store.database, timedelta(days=30))
    assert deliveries(stage, flow) == [[f"{url}?…", 1, 200, None]]


def age_outage(stage: Stage, run: Run, age: timedelta) -> None:
    with stage.side_door.connection() as connection:
        connection.execute(
            b"UPDATE system_flow_outages SET since = since - %s WHERE operation = %s",
            [age, run.operation],
        )


def test_a_secret_is_needed_to_sign(stage: Stage, flow: Run) -> None:
    body = {
        "flow": flow.flow,
        "key": "hook",
        "type": "request",
        "options": {"url": "https://example.com", "sign": True},
    }
    answer = stage.admin.post("/operations", body)
    assert answer.status == 422
    assert answer.errors[0]["path"] == ["options", "secret"]
    body["options"] = {"url": "https://example.com", "sign": True, "secret": "short"}
    answer = stage.admin.post("/operations", body)
    assert answer.status == 422
    assert "short" not in json.dumps(answer.errors[0]["reason"])
    body["options"] = {"url": "https://example.com", "sign": True, "secret": "{{$env.KEY}}"}
    assert stage.admin.post("/operations", body).status == 200
