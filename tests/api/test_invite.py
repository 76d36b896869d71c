"""Invitations: users whom somebody makes and who choose their password."""

from __future__ import annotations

import pytest

from tests.client import Answer, Client
from tests.members import may, member, new_role
from tests.people import Outbox, login, of_user, outcome, person
from tests.things import Stage

INVITE = "/users/invite"
ACCEPT = "/users/invite/accept"
CHOSEN = "my own words"


@pytest.fixture(scope="module")
def role(stage: Stage) -> str:
    return new_role(stage)


def accept(client: Client, token: str) -> Answer:
    return client.post(ACCEPT, {"token": token, "password": CHOSEN})


def test_an_invited_user_chooses_a_password_and_is_in(
    stage: Stage, mails: Outbox, role: str
) -> None:
    answer = stage.admin.post(INVITE, {"email": "ann@example.com", "role": role})
    assert (answer.status, answer.text) == (204, "")
    assert (of_user(stage, "ann@example.com", "status"), mails.sent[0].to) == (
        "invited",
        "ann@example.com",
    )
    assert mails.link.startswith("http://127.0.0.1:8055/admin/accept-invite?token=")
    assert accept(stage.anonymous, mails.token).status == 204
    assert login(stage.anonymous, "ann@example.com", CHOSEN).status == 200
    assert str(of_user(stage, "ann@example.com", "role")) == role
    again = accept(stage.anonymous, mails.token)
    assert (outcome(again), again.errors[0]["reason"]) == ((401, ["INVALID_TOKEN"]), "used")


def test_before_that_nobody_can_log_in(stage: Stage, mails: Outbox, role: str) -> None:
    stage.admin.post(INVITE, {"email": "bea@example.com", "role": role})
    for password in ("x", "None", "null"):
        assert outcome(login(stage.anonymous, "bea@example.com", password)) == (
            401,
            ["INVALID_CREDENTIALS"],
        )


def test_several_are_invited_at_once_each_with_a_link(
    stage: Stage, mails: Outbox, role: str
) -> None:
    emails = [f"many{number}@example.com" for number in range(5)]
    assert (
        stage.admin.post(INVITE, {"email": [*emails, emails[0].upper()], "role": role}).status
        == 204
    )
    assert sorted(str(mail.to).lower() for mail in mails.sent) == emails
    assert len({mail.data["url"] for mail in mails.sent}) == 5


def test_all_or_none(stage: Stage, mails: Outbox, role: str) -> None:
    taken = person(stage)
    answer = stage.admin.post(INVITE, {"email": ["new1@example.com", taken.upper()], "role": role})
    assert outcome(answer) == (400, ["RECORD_NOT_UNIQUE"])
    assert (answer.errors[0]["field"], answer.errors[0]["index"]) == ("email", 1)
    assert of_user(stage, "new1@example.com", "id") is None
    assert mails.sent == []


def test_who_is_invited_already_is_invited_again(stage: Stage, mails: Outbox, role: str) -> None:
    other = new_role(stage)
    for chosen in (role, other):
        assert stage.admin.post(INVITE, {"email": "cyd@example.com", "role": chosen}).status == 204
    assert len(mails.sent) == 2
    assert str(of_user(stage, "cyd@example.com", "role")) == other
    assert accept(stage.anonymous, mails.token).status == 204


def test_only_who_may_make_users_may_invite(stage: Stage, mails: Outbox, role: str) -> None:
    body = {"email": "dee@example.com", "role": role}
    for client in (stage.anonymous, member(stage, may("system_users"))):
        assert outcome(client.post(INVITE, body)) == (403, ["FORBIDDEN"])
    assert of_user(stage, "dee@example.com", "id") is None
    assert mails.sent == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"email": "no address"}, "email"),
        ({"email": ["a@example.com", 7]}, "email"),
        ({"email": []}, "email"),
        ({"email": ["a@example.com"] * 1001}, "email"),
        ({"email": "a@example.com\r\nBcc: all@example.com"}, "email"),
        ({"email": f"{'x' * 320}@example.com"}, "email"),
        ({"role": "admin"}, "role"),
        ({"role": None}, "role"),
        ({"invite_url": "https://evil.example/"}, "invite_url"),
    ],
)
def test_what_is_wrong_is_named(
    stage: Stage, mails: Outbox, role: str, body: dict[str, object], field: str
) -> None:
    answer = stage.admin.post(INVITE, {"email": "a@example.com", "role": role, **body})
    assert (answer.status, answer.errors[0]["field"]) == (400, field)
    assert mails.sent == []


def test_a_role_must_be_there(stage: Stage, mails: Outbox) -> None:
    body = {"email": "eve@example.com", "role": "0b9b1dc6-7ae1-4d4b-a6ef-0c1e76a5a5d3"}
    assert outcome(stage.admin.post(INVITE, body)) == (400, ["INVALID_FOREIGN_KEY"])


def test_an_invitation_dies_when_the_user_is_suspended_or_gets_another_address(
    stage: Stage, mails: Outbox, role: str
) -> None:
    for change in ("status = 'suspended'", "email = 'elsewhere@example.com'"):
        stage.admin.post(INVITE, {"email": "fay@example.com", "role": role})
        stage.execute(f"UPDATE system_users SET {change} WHERE email = 'fay@example.com'")
        assert outcome(accept(stage.anonymous, mails.token)) == (401, ["INVALID_TOKEN"])
        stage.execute(
            "DELETE FROM system_users WHERE email IN ('fay@example.com', 'elsewhere@example.com')"
        )


def test_an_invitation_is_written_down(stage: Stage, mails: Outbox, role: str) -> None:
    stage.admin.post(INVITE, {"email": "gil@example.com", "role": role})
    user = of_user(stage, "gil@example.com", "id")
    activities = stage.admin.get(f'/activity?filter={{"item":{{"_eq":"{user}"}}}}').data
    assert [(row["action"], row["collection"]) for row in activities] == [
        ("create", "system_users")
    ]
    assert activities[0]["user"] == stage.admin.get("/users/me").data["id"]
