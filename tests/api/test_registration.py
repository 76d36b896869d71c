"""Public registration: open or closed, with a link to follow or without."""

from __future__ import annotations

import json

import psycopg
import pytest

from cms.hashing.passwords import Passwords
from tests.client import Answer
from tests.members import new_role
from tests.people import PASSWORD, Outbox, login, of_user, outcome, person
from tests.things import Stage

REGISTER = "/users/register"
VERIFY = "/users/register/verify-email"


@pytest.fixture(autouse=True)
def open_to_all(stage: Stage) -> None:
    change_settings(stage, public_registration=True, public_registration_verify_email=True)
    change_settings(
        stage,
        public_registration_email_filter=None,
        auth_password_policy=None,
        public_registration_role=None,
    )


def change_settings(stage: Stage, **settings: object) -> None:
    assigned = ", ".join(f"{name} = %s" for name in settings)
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(
            f"UPDATE system_settings SET {assigned}".encode(), list(settings.values())
        )


def register(stage: Stage, email: str, password: str = PASSWORD, **values: object) -> Answer:
    return stage.anonymous.post(REGISTER, {"email": email, "password": password, **values})


def test_who_follows_the_link_may_log_in(stage: Stage, mails: Outbox) -> None:
    role = new_role(stage)
    change_settings(stage, public_registration_role=role)
    answer = register(stage, "ann@example.com", first_name="Ann", last_name="Lee")
    assert (answer.status, answer.text) == (204, "")
    assert outcome(login(stage.anonymous, "ann@example.com")) == (401, ["INVALID_CREDENTIALS"])
    assert mails.link.startswith(f"http://127.0.0.1:8055{VERIFY}?token=")
    assert stage.anonymous.get(VERIFY, token=mails.token).status == 200
    assert login(stage.anonymous, "ann@example.com").status == 200
    names = of_user(stage, "ann@example.com", "concat(first_name, ' ', last_name, ' ', role)")
    assert names == f"Ann Lee {role}"


def test_the_link_works_once(stage: Stage, mails: Outbox) -> None:
    register(stage, "bea@example.com")
    assert stage.anonymous.get(VERIFY, token=mails.token).status == 200
    stage.execute("UPDATE system_users SET status = 'draft' WHERE email = 'bea@example.com'")
    again = stage.anonymous.get(VERIFY, token=mails.token)
    assert (outcome(again), again.errors[0]["reason"]) == ((401, ["INVALID_TOKEN"]), "used")


def test_to_ask_where_the_link_leads_opens_nothing(stage: Stage, mails: Outbox) -> None:
    register(stage, "bob@example.com")
    assert stage.anonymous.send("HEAD", f"{VERIFY}?token={mails.token}").status == 200
    assert of_user(stage, "bob@example.com", "status") == "draft"
    assert stage.anonymous.get(VERIFY, token=mails.token).status == 200


@pytest.mark.quick(1)
@pytest.mark.parametrize("between", ["active", "suspended", "draft"])
def test_an_account_that_an_administrator_has_closed_is_not_opened_by_registering(
    stage: Stage, mails: Outbox, between: str
) -> None:
    email = f"{between}@example.com"
    register(stage, email)
    path = f"/users/{of_user(stage, email, 'id')}"
    link = mails.token
    for status in (between, "draft"):
        assert stage.admin.patch(path, {"status": status}).status == 200
    assert register(stage, email).status == 204
    assert len(mails.sent) == 1
    assert outcome(stage.anonymous.get(VERIFY, token=link)) == (401, ["INVALID_TOKEN"])
    assert of_user(stage, email, "status") == "draft"


def test_without_verification_the_account_is_open_at_once(stage: Stage, mails: Outbox) -> None:
    change_settings(stage, public_registration_verify_email=False)
    assert register(stage, "cyd@example.com").status == 204
    assert login(stage.anonymous, "cyd@example.com").status == 200
    assert mails.mails == []


def test_closed_is_closed(stage: Stage, mails: Outbox) -> None:
    change_settings(stage, public_registration=False)
    assert outcome(register(stage, "dee@example.com")) == (403, ["FORBIDDEN"])
    assert of_user(stage, "dee@example.com", "id") is None


def test_the_settings_decide_whose_addresses_are_welcome(stage: Stage, mails: Outbox) -> None:
    welcome = {
        "_or": [
            {"email": {"_ends_with": "@example.com"}},
            {"email": {"_regex": "@example\\.(org|net)$"}},
        ]
    }
    change_settings(stage, public_registration_email_filter=json.dumps(welcome))
    assert outcome(register(stage, "eve@evil.example")) == (403, ["FORBIDDEN"])
    assert outcome(register(stage, "eve@example.com.evil.example")) == (403, ["FORBIDDEN"])
    assert register(stage, "eve@Example.ORG").status == 204
    change_settings(stage, public_registration_email_filter='{"email": {"_frobnicates": 1}}')
    assert outcome(register(stage, "fay@example.com")) == (403, ["FORBIDDEN"])


@pytest.mark.parametrize("verify", ["true", "false"])
def test_nobody_learns_whether_an_address_has_an_account(
    stage: Stage, mails: Outbox, monkeypatch: pytest.MonkeyPatch, verify: str
) -> None:
    change_settings(stage, public_registration_verify_email=verify)
    known = person(stage)
    waiting = f"waiting{verify}@example.com"
    register(stage, waiting)
    mails.mails.clear()
    hashed: list[str] = []
    compared: list[str] = []

    def counted(_own: Passwords, password: str) -> str:
        hashed.append(password)
        return f"hash of {password}"

    def matches(_own: Passwords, stored: str | None, password: str) -> bool:
        compared.append(password)
        return False

    monkeypatch.setattr(Passwords, "hashed", counted)
    monkeypatch.setattr(Passwords, "matches", matches)
    before = of_user(stage, known, "row_to_json(system_users)::text")
    emails = (known.upper(), f"new{verify}@example.com", waiting)
    answers = [register(stage, email, "taken over") for email in emails]
    assert [(answer.status, answer.text, answer.headers.keys()) for answer in answers] == [
        (204, "", answers[0].headers.keys())
    ] * 3
    assert hashed == compared == ["taken over"] * 3
    expected = [True, False, False] if verify == "true" else []
    assert [mail.to is None for mail in mails.mails] == expected
    assert of_user(stage, known, "row_to_json(system_users)::text") == before


@pytest.mark.parametrize("status", ["draft", "invited", "suspended", "archived"])
def test_an_account_in_any_state_is_left_alone(stage: Stage, mails: Outbox, status: str) -> None:
    email = person(stage, status=status)
    before = of_user(stage, email, "password")
    assert register(stage, email, "taken over").status == 204
    assert (of_user(stage, email, "password"), of_user(stage, email, "status")) == (before, status)
    assert mails.sent == []


def test_who_registers_again_before_the_link_begins_anew_and_the_older_link_dies(
    stage: Stage, mails: Outbox
) -> None:
    register(stage, "gil@example.com")
    older = mails.token
    register(stage, "Gil@example.com", first_name="Gil")
    assert outcome(stage.anonymous.get(VERIFY, token=older)) == (401, ["INVALID_TOKEN"])
    assert stage.anonymous.get(VERIFY, token=mails.token).status == 200
    assert of_user(stage, "Gil@example.com", "first_name") == "Gil"
    assert login(stage.anonymous, "gil@example.com").status == 200


@pytest.mark.parametrize(
    "passwords", [("of the owner", "of somebody else"), ("of somebody else", "of the owner")]
)
def test_the_owner_of_an_address_opens_no_account_for_somebody_elses_password(
    stage: Stage, mails: Outbox, passwords: tuple[str, str]
) -> None:
    """Whoever comes first: the owner awaits a link and follows the one that works."""
    email = f"{passwords[0].replace(' ', '-')}@example.com"
    for password in passwords:
        register(stage, email, password)
    assert stage.anonymous.get(VERIFY, token=mails.token).status == 200
    assert [login(stage.anonymous, email, password).status for password in passwords] == [401, 401]
    assert stage.anonymous.post("/auth/password/request", {"email": email}).status == 204
    body = {"token": mails.token, "password": "of the owner alone"}
    assert stage.anonymous.post("/auth/password/reset", body).status == 204
    assert login(stage.anonymous, email, "of the owner alone").status == 200


def test_a_password_must_follow_the_policy(stage: Stage, mails: Outbox) -> None:
    change_settings(stage, auth_password_policy="[0-9]")
    assert outcome(register(stage, "hal@example.com", "mails")) == (422, ["FAILED_VALIDATION"])
    assert register(stage, "hal@example.com", "mails 1").status == 204


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"email": "nobody"}, "email"),
        ({"password": ""}, "password"),
        ({"first_name": 7}, "first_name"),
        ({"verification_url": "https://evil.example"}, "verification_url"),
    ],
)
def test_what_is_wrong_is_named(
    stage: Stage, mails: Outbox, payload: dict[str, object], field: str
) -> None:
    body = {"email": "ian@example.com", "password": PASSWORD, **payload}
    answer = stage.anonymous.post(REGISTER, body)
    assert (answer.status, answer.errors[0]["field"]) == (400, field)
    assert mails.mails == []


def test_nobody_gives_oneself_a_role(stage: Stage, mails: Outbox) -> None:
    role = new_role(stage, admin_access=True)
    account = {"email": "joe@example.com", "password": PASSWORD}
    for more in ({"role": role}, {"status": "active"}, {"admin_access": True}):
        answer = stage.anonymous.post("/users/register", {**account, **more})
        assert outcome(answer) == (400, ["INVALID_PAYLOAD"])
    assert stage.admin.get("/users", **{"filter[email]": "joe@example.com"}).data == []


def test_a_link_without_a_token_is_refused_with_that_reason(stage: Stage) -> None:
    assert outcome(stage.anonymous.get(VERIFY)) == (400, ["INVALID_QUERY"])
    assert outcome(stage.anonymous.get(VERIFY, token="x")) == (401, ["INVALID_TOKEN"])
