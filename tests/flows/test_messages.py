"""The operations mail and notification."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cms.errors import Refused
from cms.flows.run import Run, Services
from cms.store.identity import Identity
from tests.flows.runs import do, new_run, rejection
from tests.people import person
from tests.things import Stage


@pytest.fixture
def run(stage: Stage, services: Services) -> Run:
    empty_queue(stage)
    return new_run(services)


def empty_queue(stage: Stage) -> None:
    with stage.side_door.connection() as connection:
        connection.execute("DELETE FROM procrastinate_jobs; DELETE FROM system_notifications")


def mails(stage: Stage) -> list[dict[str, Any]]:
    text = stage.value(
        "SELECT coalesce(json_agg(args -> 'payload' ORDER BY id), '[]')::text "
        "FROM procrastinate_jobs WHERE task_name = 'mail'"
    )
    payloads: list[dict[str, Any]] = json.loads(text)
    return payloads


def user(stage: Stage, **columns: object) -> tuple[str, str]:
    """Make a user, and return id and address."""
    email = person(stage, **columns)
    return stage.value(f"SELECT id::text FROM system_users WHERE email = '{email}'"), email


def test_a_mail_is_queued_with_its_options(stage: Stage, run: Run) -> None:
    options = {
        "to": "a@example.com, b@example.com",
        "cc": ["c@example.com"],
        "bcc": "d@example.com",
        "subject": "News",
        "body": "# Hello",
    }
    assert do(run, "mail", **options) is None
    (mail,) = mails(stage)
    assert mail["to"] == ["a@example.com", "b@example.com"]
    assert (mail["cc"], mail["bcc"]) == (["c@example.com"], ["d@example.com"])
    assert (mail["subject"], mail["body"], mail["kind"]) == ("News", "# Hello", "markdown")
    assert mail["template"] == "generic"


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"type": "html", "body": "<b>x</b>"}, "html", "generic"),
        ({"type": "wysiwyg", "body": "<b>x</b>"}, "html", "generic"),
        ({"type": "text", "body": "x"}, "text", "generic"),
        ({"type": "template", "template": "welcome", "data": {"n": 1}}, "markdown", "welcome"),
        ({"type": "template", "template": "welcome", "body": "x"}, "markdown", "welcome"),
        ({"template": "welcome"}, "markdown", "welcome"),
        ({"template": "welcome", "body": "x"}, "markdown", "generic"),
    ],
)
def test_a_mail_has_a_body_or_a_template(
    stage: Stage, run: Run, options: dict[str, Any], kind: str, named: str
) -> None:
    do(run, "mail", to=["a@example.com"], subject="News", **options)
    (mail,) = mails(stage)
    assert (mail["kind"], mail["template"]) == (kind, named)
    assert mail["data"] == options.get("data", {})


def test_a_template_outside_of_the_folder_is_refused(stage: Stage, run: Run) -> None:
    options = {"to": "a@example.com", "subject": "x", "template": "../secret"}
    with pytest.raises(Refused):
        do(run, "mail", **options)
    assert mails(stage) == []


def test_notifications_are_rows_and_reach_the_mailbox_of_those_who_want_them(
    stage: Stage, services: Services
) -> None:
    empty_queue(stage)
    keen, address = user(stage)
    calm, _ = user(stage, email_notifications=False)
    gone, _ = user(stage, status="suspended")
    sender, _ = user(stage)
    run = new_run(services, Identity(user=sender))
    recipients = [keen, calm, gone, keen]
    options = {"subject": "Done", "message": "It *is*", "collection": "pages", "item": 5}
    assert sorted(do(run, "notification", recipient=recipients, **options)) == sorted(
        [keen, calm, gone]
    )
    rows = stage.value(
        "SELECT json_agg(json_build_array(sender, subject, message, collection, item, status)) "
        "FROM system_notifications"
    )
    assert rows == [[sender, "Done", "It *is*", "pages", "5", "inbox"]] * 3
    (mail,) = mails(stage)
    assert (mail["to"], mail["subject"], mail["body"]) == ([address], "Done", "It *is*")


def test_a_recipient_may_be_written_in_capitals(stage: Stage, run: Run) -> None:
    known, _ = user(stage)
    recipients = [known.upper(), known]
    assert do(run, "notification", recipient=recipients, subject="Done") == [known]


def test_an_unknown_recipient_rejects_and_nobody_is_notified(stage: Stage, run: Run) -> None:
    known, _ = user(stage)
    unknown = "6d82432b-98a5-4064-a153-8f8c8bb1257b"
    result = rejection(run, "notification", recipient=[known, unknown], subject="Done")
    assert unknown in result["message"]
    assert stage.value("SELECT count(*) FROM system_notifications") == 0
    assert mails(stage) == []
