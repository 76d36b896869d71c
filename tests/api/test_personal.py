"""/notifications, /presets and /translations: what belongs to people, and to all of them."""

from __future__ import annotations

from typing import Any

import pytest

from cms.items.history.mentions import MAX_MENTIONS
from tests.client import Client
from tests.members import may, member_of, new_role
from tests.things import Stage, field, table


class Person:
    """A user with app access."""

    def __init__(self, stage: Stage, *permissions: dict[str, Any], **columns: object) -> None:
        role = new_role(stage, *permissions, app_access=True)
        self.role = role
        self.client = member_of(stage, role, **columns)
        self.id = self.client.get("/users/me").data["id"]


@pytest.fixture
def ann(stage: Stage) -> Person:
    return Person(stage)


@pytest.fixture
def ben(stage: Stage) -> Person:
    return Person(stage)


def mails(stage: Stage) -> list[tuple[str, str]]:
    """Return recipient and subject of each mail in the queue, the oldest first."""
    payloads = stage.value(
        "SELECT coalesce(json_agg(args -> 'payload' ORDER BY id), '[]')"
        " FROM procrastinate_jobs WHERE task_name = 'mail'"
    )
    return [(mail["to"][0], mail["subject"]) for mail in payloads]


# Presets


def test_everybody_with_app_access_keeps_presets_of_their_own(ann: Person, ben: Person) -> None:
    preset = {
        "bookmark": "Drafts",
        "collection": "articles",
        "layout_query": {"tabular": {"sort": ["-id"], "fields": ["title"]}},
        "layout_options": {"tabular": {"widths": {"title": 120.5}}},
        "filter": {"_and": [{"status": {"_eq": "draft"}}]},
    }
    made = ann.client.post("/presets", preset).data
    assert made["user"] == ann.id
    assert {name: made[name] for name in preset} == preset
    assert ben.client.get(f"/presets/{made['id']}").status == 404
    assert ben.client.patch(f"/presets/{made['id']}", {"bookmark": "Mine"}).status == 404
    assert ben.client.delete(f"/presets/{made['id']}").status == 404
    # An application sends back all that it has read.
    changed = ann.client.patch(f"/presets/{made['id']}", {**made, "bookmark": "Mine"}).data
    assert changed["bookmark"] == "Mine"
    assert ann.client.delete(f"/presets/{made['id']}").status == 204


def test_presets_of_a_role_and_of_all_are_read_and_not_changed(
    admin: Client, ann: Person, ben: Person
) -> None:
    of_role = admin.post("/presets", {"bookmark": "Team", "role": ann.role}).data["id"]
    of_all = admin.post("/presets", {"bookmark": "All"}).data["id"]
    preset_ids = {preset["id"] for preset in ann.client.get("/presets").data}
    assert preset_ids >= {of_role, of_all}
    assert of_role not in {preset["id"] for preset in ben.client.get("/presets").data}
    for key in (of_role, of_all):
        assert ann.client.patch(f"/presets/{key}", {"bookmark": "X"}).status == 403
        assert ann.client.delete(f"/presets/{key}").status == 403


@pytest.mark.parametrize("owner", ["user", "role", "nobody"])
def test_nobody_makes_presets_for_others_or_gives_them_away(
    ann: Person, ben: Person, owner: str
) -> None:
    values = {"user": {"user": ben.id}, "role": {"role": ann.role}, "nobody": {"user": None}}[owner]
    assert ann.client.post("/presets", {"bookmark": "B", **values}).status in (403, 422)
    own = ann.client.post("/presets", {"bookmark": "A"}).data["id"]
    assert ann.client.patch(f"/presets/{own}", values).status in (403, 422)
    assert ann.client.get(f"/presets/{own}").data["user"] == ann.id


def test_callers_without_app_access_have_no_presets(stage: Stage, anonymous: Client) -> None:
    stranger = member_of(stage, new_role(stage))
    for client in (stranger, anonymous):
        assert client.get("/presets").status == 403
        assert client.post("/presets", {"bookmark": "X"}).status == 403
        assert client.get("/notifications").status == 403


# Notifications


def test_a_notification_belongs_to_its_recipient(admin: Client, ann: Person, ben: Person) -> None:
    sent = {"recipient": ann.id, "subject": "Hello", "message": "**Hi**", "sender": ben.id}
    key = admin.post("/notifications", sent).data["id"]
    own = ann.client.get(f"/notifications/{key}").data
    assert (own["subject"], own["status"]) == ("Hello", "inbox")
    # Nobody writes in the name of somebody else.
    assert own["sender"] == admin.get("/users/me").data["id"]
    assert ann.client.patch(f"/notifications/{key}", {"status": "archived"}).status == 200
    assert ann.client.patch(f"/notifications/{key}", {"status": "lost"}).status == 400
    for change in ({"recipient": ben.id}, {"subject": "Bye"}, {"sender": ann.id}):
        assert ann.client.patch(f"/notifications/{key}", change).status == 403
    assert ben.client.get(f"/notifications/{key}").status == 404
    assert ben.client.delete(f"/notifications/{key}").status == 404
    assert ann.client.delete(f"/notifications/{key}").status == 204


def test_app_access_alone_notifies_nobody(ann: Person, ben: Person) -> None:
    body = {"recipient": ben.id, "subject": "Hello"}
    assert ann.client.post("/notifications", body).status == 403


def test_a_permission_to_write_notifications_moves_none(
    stage: Stage, admin: Client, ann: Person, ben: Person
) -> None:
    writer = Person(
        stage,
        may("system_notifications", action="create"),
        may("system_notifications", action="read"),
        may("system_notifications", action="update"),
    )
    sent = {"recipient": ann.id, "subject": "Hello", "sender": ben.id}
    made = writer.client.post("/notifications", sent).data
    assert made["sender"] == writer.id
    path = f"/notifications/{made['id']}"
    assert writer.client.patch(path, {"recipient": ben.id}).status == 403
    assert writer.client.patch(path, {**made, "status": "archived"}).status == 200


def test_a_notification_is_mailed_to_those_who_want_it(
    stage: Stage, admin: Client, ann: Person
) -> None:
    silent = Person(stage, email="silent@example.com", email_notifications=False)
    wanting = Person(stage, email="wanting@example.com", email_notifications=True)
    before = len(mails(stage))
    bodies = [{"recipient": each.id, "subject": "News"} for each in (silent, wanting)]
    admin.post("/notifications", bodies)
    assert mails(stage)[before:] == [("wanting@example.com", "News")]


@pytest.mark.parametrize("subject", ["", "  ", "x" * 256, None], ids=lambda text: str(text)[:3])
def test_a_notification_has_a_subject_that_fits_a_line(
    admin: Client, ann: Person, subject: str | None
) -> None:
    answer = admin.post("/notifications", {"recipient": ann.id, "subject": subject})
    assert (answer.status, answer.errors[0]["field"]) == (422, "subject")


@pytest.mark.parametrize("name", ["key", "language"])
def test_a_translation_has_a_key_and_a_language(admin: Client, name: str) -> None:
    body = {"key": "greeting", "language": "de-DE", "value": "Hallo"}
    answer = admin.post("/translations", {**body, name: " "})
    assert (answer.status, answer.errors[0]["field"]) == (422, name)


# Mentions


@pytest.fixture
def page(admin: Client) -> dict[str, Any]:
    pages = table(admin, field("title", "string"))
    pages.add({"title": "One"})
    return {"collection": pages.name, "item": 1}


def subjects(person: Person) -> list[str]:
    return [each["subject"] for each in person.client.get("/notifications", sort="id").data]


def test_whoever_is_mentioned_in_a_comment_is_notified_once(
    stage: Stage, admin: Client, page: dict[str, Any]
) -> None:
    reader = Person(
        stage, may(page["collection"]), email="reader@example.com", email_notifications=True
    )
    text = f"@{reader.id} and again @{reader.id.upper()}, look!"
    key = admin.post("/comments", {**page, "comment": text}).data["id"]
    (notification,) = reader.client.get("/notifications").data
    assert notification["subject"] == f"You are mentioned in a comment on {page['collection']}"
    assert (notification["message"], notification["item"]) == (text, "1")
    assert notification["sender"] == admin.get("/users/me").data["id"]
    assert mails(stage)[-1] == ("reader@example.com", notification["subject"])
    admin.patch(f"/comments/{key}", {"comment": f"{text} Please."})
    assert len(subjects(reader)) == 1


def test_a_mention_that_is_added_later_notifies(
    stage: Stage, admin: Client, page: dict[str, Any]
) -> None:
    reader = Person(stage, may(page["collection"]))
    key = admin.post("/comments", {**page, "comment": "Look!"}).data["id"]
    admin.patch(f"/comments/{key}", {"comment": f"Look, @{reader.id}!"})
    assert len(subjects(reader)) == 1


def test_who_may_not_read_the_item_is_not_notified(
    stage: Stage, admin: Client, page: dict[str, Any], ann: Person
) -> None:
    hidden = Person(stage, may(page["collection"], permissions={"title": {"_eq": "Two"}}))
    unknown = "00000000-0000-4000-8000-000000000009"
    text = f"@{ann.id} @{hidden.id} @{unknown} @nobody @{ann.id}x"
    assert admin.post("/comments", {**page, "comment": text}).status == 200
    assert subjects(ann) == subjects(hidden) == []


@pytest.mark.release
def test_a_comment_notifies_fifty_and_reveals_no_readers(
    stage: Stage, admin: Client, page: dict[str, Any]
) -> None:
    readers = new_role(stage, may(page["collection"]), app_access=True)
    strangers = new_role(stage, app_access=True)
    ids: dict[str, list[str]] = {readers: [], strangers: []}
    for role, users in ids.items():
        for _ in range(MAX_MENTIONS + 1):
            users.append(member_of(stage, role).get("/users/me").data["id"])
    counted = f"SELECT count(*) FROM system_notifications WHERE collection = '{page['collection']}'"
    before = stage.value(counted)
    answers = []
    for users in (ids[strangers], ids[readers]):
        text = " ".join(f"@{user}" for user in users)
        answer = admin.post("/comments", {**page, "comment": text}).data
        answers.append({**answer, "id": None, "comment": None, "timestamp": None})
    assert answers[0] == answers[1]
    assert stage.value(counted) - before == MAX_MENTIONS


def test_nobody_is_notified_of_their_own_comment(stage: Stage, page: dict[str, Any]) -> None:
    author = Person(stage, may(page["collection"]), may("system_activity"))
    text = f"@{author.id} must do it"
    assert author.client.post("/comments", {**page, "comment": text}).status == 200
    assert subjects(author) == []


# Translations


def test_texts_of_the_project_are_read_by_all_and_written_by_few(
    admin: Client, ann: Person
) -> None:
    text = {"language": "de-DE", "key": "hello", "value": "Guten Tag"}
    key = admin.post("/translations", text).data["id"]
    assert ann.client.get(f"/translations/{key}").data == {**text, "id": key}
    assert ann.client.patch(f"/translations/{key}", {"value": "Hallo"}).status == 403
    assert ann.client.post("/translations", {**text, "key": "bye"}).status == 403
    again = admin.post("/translations", text)
    assert (again.status, again.codes) == (400, ["RECORD_NOT_UNIQUE"])
