"""The worked examples of docs/flows.md, each run as the page describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from standardwebhooks.webhooks import Webhook

from cms.config import Config
from cms.flows.schedules import run_due_schedules
from tests.active_flows import work
from tests.client import Answer, Client
from tests.files.sources import Source, source
from tests.things import Stage

PAGE = Path(__file__).parent.parent.parent / "docs" / "flows.md"
HOOKS = "https://hooks.example.com"
ENVIRONMENT = {
    "HOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "LINK_SECRET": "a secret of at least thirty-two bytes",
}
_BLOCK = re.compile(r"^```(http(?: public)?|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Exchange(NamedTuple):
    """A request of the page, and the answer that the page describes."""

    is_public: bool
    method: str
    path: str
    body: Any
    status: int
    answer: Any


class ExpectedMail(NamedTuple):
    to: str
    subject: str
    body: str


def sections() -> dict[str, list[Exchange | ExpectedMail]]:
    """Return the blocks of the page by the titles of its examples; "" has those before them."""
    _, _, examples = PAGE.read_text().partition("\n## Examples\n")
    preparation, *parts = re.split(r"^### ", examples, flags=re.MULTILINE)
    read = {"": blocks(preparation)}
    for part in parts:
        title, _, text = part.partition("\n")
        read[title] = blocks(text)
    return read


def blocks(text: str) -> list[Exchange | ExpectedMail]:
    return [
        expected_mail(content) if kind == "text" else exchange(content, kind)
        for kind, content in _BLOCK.findall(text)
    ]


def exchange(text: str, kind: str) -> Exchange:
    request, has_answer, answer = text.strip().partition("\n\nHTTP/1.1 ")
    line, _, body = request.partition("\n\n")
    method, path = line.split(" ")
    status, _, content = answer.partition("\n\n")
    return Exchange(
        kind.endswith("public"),
        method,
        path,
        json.loads(body) if body else None,
        int(status) if has_answer else 200,
        json.loads(content) if content else None,
    )


def expected_mail(text: str) -> ExpectedMail:
    head, _, body = text.strip().partition("\n\n")
    to, subject = (line.partition(": ")[2] for line in head.splitlines())
    return ExpectedMail(to, subject, body)


SECTIONS = sections()
EXAMPLES = [title for title in SECTIONS if title]


class Received(NamedTuple):
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def hooks() -> Iterator[tuple[Source, list[Received]]]:
    """The other service of the page, and the requests that it has got."""
    received: list[Received] = []

    def answer(handler: Any) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        received.append(Received(dict(handler.headers), body))
        handler.send_response(204)
        handler.end_headers()

    with source() as server:
        server.pages["/articles"] = answer
        yield server, received


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    return replace(
        settings, import_ip_allow_list=(ip_network("127.0.0.1/32"),), flows_env=ENVIRONMENT
    )


@pytest.fixture(scope="module", autouse=True)
def _collections(stage: Stage) -> None:
    for block in SECTIONS[""]:
        assert isinstance(block, Exchange)
        assert send(stage.admin, block).status == 200


@pytest.fixture(autouse=True)
def _nothing_of_other_examples(stage: Stage) -> None:
    flows = [flow["id"] for flow in stage.admin.get("/flows", fields="id").data]
    assert stage.admin.delete("/flows", flows).status == 204
    with stage.side_door.connection() as connection:
        connection.execute(
            "TRUNCATE articles, messages RESTART IDENTITY; DELETE FROM procrastinate_jobs"
        )


def test_there_are_ten_examples() -> None:
    assert len(EXAMPLES) == 10


@pytest.mark.release
@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_gives_the_documented_answers(
    stage: Stage, stage_settings: Config, hooks: tuple[Source, list[Received]], title: str
) -> None:
    server, received = hooks
    token = ""
    mails: list[dict[str, Any]] = []
    for block in SECTIONS[title]:
        if isinstance(block, ExpectedMail):
            mail = mails.pop(0)
            assert (mail["to"], mail["subject"], mail["body"]) == (
                [block.to],
                block.subject,
                block.body,
            )
            continue
        body = json.loads(json.dumps(block.body).replace(HOOKS, server.url("")))
        block = block._replace(body=body, path=block.path.replace("TOKEN", token))
        answer = send(stage.anonymous if block.is_public else stage.admin, block)
        assert answer.status == block.status, answer
        if block.answer is not None:
            assert_holds(answer.body, block.answer)
        data = answer.body.get("data") if answer.content else None
        token = data if isinstance(data, str) else token
        mails += run_everything(stage, stage_settings)
    assert mails == []
    if title == "Sync to another service":
        (request,) = received
        secret = ENVIRONMENT["HOOK_SECRET"]
        assert Webhook(secret).verify(request.body, request.headers) == {
            "type": "article.created",
            "data": {"id": 1, "title": "News"},
        }


def send(client: Client, block: Exchange) -> Answer:
    return client.send(block.method, block.path, block.body)


def assert_holds(actual: object, expected: object) -> None:
    """Compare an answer with the page, which may leave out keys of objects."""
    if isinstance(expected, dict):
        assert isinstance(actual, dict)
        for name, value in expected.items():
            assert_holds(actual[name], value)
    elif isinstance(expected, list):
        assert isinstance(actual, list)
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_holds(one, other)
    else:
        assert actual == expected


def run_everything(stage: Stage, config: Config) -> list[dict[str, Any]]:
    """Let a minute pass and all jobs be done, and return the mails that were sent meanwhile."""
    database = stage.admin.app.store.database
    run_due_schedules(database, ZoneInfo("UTC"))
    with stage.side_door.connection() as connection:
        connection.execute("UPDATE system_flow_schedules SET due = now() - interval '1 second'")
    run_due_schedules(database, ZoneInfo("UTC"))
    work(stage, config)
    with stage.side_door.connection() as connection:
        rows = connection.execute(
            "DELETE FROM procrastinate_jobs WHERE task_name = 'mail' RETURNING args -> 'payload'"
        ).fetchall()
    return [row[0] for row in rows]
