"""What happens to accounts elsewhere than under /users is in the history, and no secret with it."""

from __future__ import annotations

import psycopg
import pytest

from cms.auth import accounts
from tests.members import new_role
from tests.people import PASSWORD, Outbox, login, of_user, person
from tests.things import Json, Stage

pytestmark = pytest.mark.release


def history_of(stage: Stage, email: str) -> list[Json]:
    """Return what was done to a user's account, with the deltas of its revisions."""
    params = {
        "filter[collection]": "system_users",
        "filter[item]": str(of_user(stage, email, "id")),
        "sort": "id",
        "fields": "action,user,ip,revisions.delta,revisions.data",
    }
    activities: list[Json] = stage.admin.get("/activity", **params).data
    return activities


def deltas(activities: list[Json]) -> list[tuple[str, list[Json]]]:
    return [
        (activity["action"], [revision["delta"] for revision in activity["revisions"]])
        for activity in activities
    ]


def test_an_invitation_and_its_acceptance(stage: Stage, mails: Outbox) -> None:
    first = new_role(stage)
    second = new_role(stage)
    me = stage.admin.get("/users/me").data["id"]
    for role in (first, second, second):
        sent = {"email": ["ann@example.com", "amy@example.com"], "role": role}
        assert stage.admin.post("/users/invite", sent).status == 204
    creation, changed, same = history_of(stage, "ann@example.com")
    (revision,) = creation["revisions"]
    assert (creation["action"], creation["user"], creation["ip"]) == ("create", me, "127.0.0.1")
    assert revision["data"] == revision["delta"]
    assert {"email": "ann@example.com", "role": first, "status": "invited"}.items() <= revision[
        "data"
    ].items()
    assert deltas([changed, same]) == [("update", [{"role": second}]), ("update", [])]
    token = [
        mail.data["url"].partition("token=")[2]
        for mail in mails.sent
        if mail.to == "ann@example.com"
    ][-1]
    accepting = {"token": token, "password": "my own words"}
    assert stage.anonymous.post("/users/invite/accept", accepting).status == 204
    accepted = history_of(stage, "ann@example.com")[-1]
    assert accepted["user"] == str(of_user(stage, "ann@example.com", "id"))
    assert deltas([accepted]) == [("update", [{"status": "active"}])]
    assert len(history_of(stage, "amy@example.com")) == 3


def test_a_registration_begun_twice_and_its_link(stage: Stage, mails: Outbox) -> None:
    stage.execute("UPDATE system_settings SET public_registration = TRUE")
    for name in ("Bea", "Beatrix"):
        body = {"email": "bea@example.com", "password": PASSWORD, "first_name": name}
        assert stage.anonymous.post("/users/register", body).status == 204
    assert stage.anonymous.get("/users/register/verify-email", token=mails.token).status == 200
    activities = history_of(stage, "bea@example.com")
    assert deltas(activities)[1:] == [
        ("update", [{"first_name": "Beatrix"}]),
        ("update", [{"status": "active"}]),
    ]
    user = activities[0]["revisions"][0]["data"]
    assert (activities[0]["action"], user["first_name"], user["status"]) == (
        "create",
        "Bea",
        "draft",
    )
    assert {activity["user"] for activity in activities} == {
        str(of_user(stage, "bea@example.com", "id"))
    }
    again = {"email": "bea@example.com", "password": PASSWORD}
    assert stage.anonymous.post("/users/register", again).status == 204
    assert len(history_of(stage, "bea@example.com")) == 3


def test_a_password_by_mail_is_an_act_without_a_revision(stage: Stage, mails: Outbox) -> None:
    email = person(stage)
    stage.anonymous.post("/auth/password/request", {"email": email})
    sent = {"token": mails.token, "password": "quite another"}
    assert stage.anonymous.post("/auth/password/reset", sent).status == 204
    assert login(stage.anonymous, email, "quite another").status == 200
    assert deltas(history_of(stage, email)) == [("update", []), ("login", [])]


def test_too_many_failures_suspend_and_the_history_records_it(stage: Stage) -> None:
    stage.execute("UPDATE system_settings SET auth_login_attempts = 2")
    email = person(stage)
    for _ in range(3):
        login(stage.anonymous, email, "wrong")
    (activity,) = history_of(stage, email)
    assert deltas([activity]) == [("update", [{"status": "suspended"}])]
    assert (activity["user"], activity["ip"]) == (None, "127.0.0.1")


def test_accounts_of_the_command_line(stage: Stage) -> None:
    user = accounts.create_user(
        stage.dsn, email="cli@example.com", password="secret-of-cli", role=None
    )
    accounts.set_password(stage.dsn, email="cli@example.com", password="secret-again")
    accounts.make_token(stage.dsn, email="cli@example.com")
    activities = history_of(stage, "cli@example.com")
    assert [activity["user"] for activity in activities] == [None] * 3
    assert [action for action, _ in deltas(activities)] == ["create", "update", "update"]
    assert [len(activity["revisions"]) for activity in activities] == [1, 0, 0]
    assert activities[0]["revisions"][0]["data"]["id"] == user


def test_the_first_admin_and_the_role(stage: Stage) -> None:
    email = stage.admin.get("/users/me").data["email"]
    first = history_of(stage, email)[0]
    assert (first["action"], len(first["revisions"])) == ("create", 1)
    role = stage.admin.get("/users/me").data["role"]
    params = {"filter[collection]": "system_roles", "filter[item]": role, "fields": "data"}
    (revision,) = stage.admin.get("/revisions", **params).data
    assert (revision["data"]["name"], revision["data"]["admin_access"]) == ("Administrator", True)


def test_no_secret_is_in_it(stage: Stage) -> None:
    with psycopg.connect(stage.dsn) as connection:
        rows = connection.execute(
            "SELECT coalesce(string_agg(concat(data, delta), ' '), '') FROM system_revisions"
        )
        ((text,),) = rows.fetchall()
    assert "argon2" not in text
    for name in ('"password"', '"token"', '"tfa_secret"', '"auth_data"', '"failed_logins"'):
        assert name not in text
