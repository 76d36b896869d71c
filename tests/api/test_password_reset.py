"""A forgotten password: asked for, sent, set once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from cms.app import create_app
from cms.auth.mail_links import fingerprint_of
from cms.auth.tokens import link_token, sign
from cms.config import Config
from cms.hashing.passwords import Passwords
from tests.client import Answer, Client
from tests.people import PASSWORD, Outbox, login, of_user, outcome, person
from tests.things import Stage

NEW = "battery staple"
REQUEST = "/auth/password/request"
RESET = "/auth/password/reset"
APP = "https://app.example/new-password"


@pytest.fixture(scope="module")
def client(stage: Stage, settings: Config) -> Iterator[Client]:
    """The same database with an application of another site that may be linked to."""
    allowed = {"password_reset_url_allow_list": (APP,), "public_url": "https://cms.example/x"}
    config = replace(settings, database_url=stage.dsn, database_pool_size=3)
    config = replace(config, **allowed)  # type: ignore[arg-type]
    client = Client(create_app(config))
    yield client
    client.close()


def reset(client: Client, token: str, password: str = NEW) -> Answer:
    return client.post(RESET, {"token": token, "password": password})


def test_a_link_comes_by_mail_and_sets_the_password(
    stage: Stage, client: Client, mails: Outbox
) -> None:
    email = person(stage)
    answer = client.post(REQUEST, {"email": email.upper()})
    assert (answer.status, answer.text) == (204, "")
    assert mails.sent[0].to == email
    assert mails.link.startswith("https://cms.example/x/admin/reset-password?token=")
    assert reset(client, mails.token).status == 204
    assert outcome(login(client, email)) == (401, ["INVALID_CREDENTIALS"])
    assert login(client, email, NEW).status == 200


def test_a_link_works_once(stage: Stage, client: Client, mails: Outbox) -> None:
    email = person(stage)
    client.post(REQUEST, {"email": email})
    first = mails.token
    client.post(REQUEST, {"email": email})
    assert reset(client, first).status == 204
    for token in (first, mails.token):
        answer = reset(client, token, "a third")
        assert outcome(answer) == (401, ["INVALID_TOKEN"])
        assert (answer.errors[0]["reason"], "used already" in answer.errors[0]["message"]) == (
            "used",
            True,
        ), answer
    assert login(client, email, NEW).status == 200


def test_of_two_uses_at_once_one_succeeds(stage: Stage, client: Client, mails: Outbox) -> None:
    client.post(REQUEST, {"email": person(stage)})
    # Of more, some would be told to try again: half of the threads are kept free from hashes.
    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(lambda turn: reset(client, mails.token, f"new {turn}").status, range(2))
        )
    assert sorted(answers) == [204, 401]


def test_a_new_password_ends_all_sessions_at_once(
    stage: Stage, client: Client, mails: Outbox
) -> None:
    email = person(stage)
    tokens = login(client, email).data
    bearing = client.bearing(tokens["access_token"])
    assert bearing.get("/permissions/me").status == 200
    client.post(REQUEST, {"email": email})
    reset(client, mails.token)
    assert outcome(bearing.get("/users")) == (401, ["INVALID_TOKEN"])
    assert client.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}).status == 401


def test_a_link_is_good_for_nothing_else_and_nothing_else_is_a_link(
    stage: Stage, client: Client, mails: Outbox
) -> None:
    email = person(stage)
    client.post(REQUEST, {"email": email})
    token = mails.token
    refused = (401, ["INVALID_TOKEN"])
    assert outcome(client.bearing(token).get("/users/me")) == refused
    assert (
        outcome(client.post("/users/invite/accept", {"token": token, "password": NEW})) == refused
    )
    assert outcome(client.get("/users/register/verify-email", token=token)) == refused
    tokens = login(client, email).data
    for other in (
        tokens["access_token"],
        tokens["refresh_token"],
        "x",
        "a.b.c",
        token[:-4] + "AAAA",
    ):
        assert outcome(reset(client, other)) == refused


def test_a_link_has_its_time(stage: Stage, client: Client, settings: Config) -> None:
    user = of_user(stage, person(stage), "id")
    token = link_token(
        "password-reset",
        user=str(user),
        fingerprint="x",
        secret=settings.secret or "",
        life=timedelta(seconds=-1),
    )
    assert reset(client, token).errors[0]["reason"] == "expired"


def test_a_link_that_an_older_version_sent_is_good_once(
    stage: Stage, client: Client, settings: Config
) -> None:
    email = person(stage)
    fingerprint = fingerprint_of(email, str(of_user(stage, email, "password")))
    claims = {"id": str(of_user(stage, email, "id")), "mark": fingerprint}
    token = sign("password-reset", claims, secret=settings.secret or "", life=timedelta(minutes=1))
    assert reset(client, token).status == 204
    assert login(client, email, NEW).status == 200
    assert reset(client, token).errors[0]["reason"] == "used"


@pytest.mark.parametrize(
    "columns", [{"status": "suspended"}, {"status": "invited"}, {"provider": "google"}]
)
def test_who_cannot_log_in_by_password_gets_no_mail(
    stage: Stage, client: Client, mails: Outbox, columns: dict[str, str]
) -> None:
    assert client.post(REQUEST, {"email": person(stage, **columns)}).status == 204
    assert mails.sent == []


def test_a_user_who_is_suspended_meanwhile_cannot_use_the_link(
    stage: Stage, client: Client, mails: Outbox
) -> None:
    email = person(stage)
    client.post(REQUEST, {"email": email})
    stage.execute(f"UPDATE system_users SET status = 'suspended' WHERE email = '{email}'")
    assert outcome(reset(client, mails.token)) == (401, ["INVALID_TOKEN"])


def test_a_link_dies_with_the_address_that_it_went_to(
    stage: Stage, client: Client, mails: Outbox
) -> None:
    email = person(stage)
    client.post(REQUEST, {"email": email})
    stage.execute(f"UPDATE system_users SET email = 'new-{email}' WHERE email = '{email}'")
    assert outcome(reset(client, mails.token)) == (401, ["INVALID_TOKEN"])


def test_known_and_unknown_addresses_are_the_same_work(
    stage: Stage, client: Client, mails: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mail is written for both, and sent to one; nothing is hashed for either."""
    hashed: list[str] = []
    email = person(stage)
    monkeypatch.setattr(Passwords, "hashed", lambda _own, password: hashed.append(password))
    known = client.post(REQUEST, {"email": email})
    unknown = client.post(REQUEST, {"email": "nobody@example.com"})
    assert (known.status, known.text) == (unknown.status, unknown.text) == (204, "")
    assert [mail.to is None for mail in mails.mails] == [False, True]
    assert [len(mail.data["url"]) for mail in mails.mails] == [len(mails.link)] * 2
    assert hashed == []


def test_the_link_goes_where_the_settings_allow_and_nowhere_else(
    stage: Stage, client: Client, mails: Outbox
) -> None:
    email = person(stage)
    for allowed in (APP, f"{APP}/", f"{APP}?lang=de"):
        assert client.post(REQUEST, {"email": email, "reset_url": allowed}).status == 204
        assert mails.link.startswith(allowed)
        assert reset(client, mails.token, PASSWORD).status == 204
    sent = len(mails.mails)
    elsewhere: list[object] = [
        "https://evil.example/new-password",
        "https://app.example",
        "https://app.example.evil.example/new-password",
        "https://app.example@evil.example/new-password",
        "http://app.example/new-password",
        f"{APP}/../../evil",
        f"{APP}#evil",
        f"{APP}\\@evil.example",
        f"{APP}\r\nBcc: all@example.com",
        "//evil.example",
        "javascript:alert(1)",
        "",
        7,
    ]
    for url in elsewhere:
        answer = client.post(REQUEST, {"email": email, "reset_url": url})
        assert (answer.status, answer.errors[0].get("field")) == (400, "reset_url"), url
    assert len(mails.mails) == sent


def test_the_host_header_of_a_request_is_never_in_a_mail(
    stage: Stage, client: Client, mails: Outbox
) -> None:
    for header in (
        "Host",
        "X-Forwarded-Host",
        "X-Forwarded-Server",
        "Forwarded",
        "Origin",
        "Referer",
    ):
        headers = {header: "evil.example"}
        assert client.send("POST", REQUEST, {"email": person(stage)}, **headers).status == 204
        assert "evil" not in mails.link, header


@pytest.mark.parametrize(
    ("password", "status"), [("", 400), ("x" * 1001, 400), (7, 400), ("x" * 1000, 204), ("x", 204)]
)
def test_a_password_has_one_to_a_thousand_characters(
    stage: Stage, client: Client, mails: Outbox, password: object, status: int
) -> None:
    client.post(REQUEST, {"email": person(stage)})
    assert client.post(RESET, {"token": mails.token, "password": password}).status == status


@pytest.mark.parametrize("policy", ["^.{8,}$", "/^.{8,}$/", "(?!", "(?=.*x)"])
def test_a_password_follows_the_policy_and_one_that_cannot_be_read_lets_none_through(
    stage: Stage, client: Client, mails: Outbox, policy: str
) -> None:
    client.post(REQUEST, {"email": person(stage)})
    stage.execute(f"UPDATE system_settings SET auth_password_policy = '{policy}'")
    try:
        answer = reset(client, mails.token, "short")
        assert (answer.status, answer.errors[0]["field"], answer.errors[0]["type"]) == (
            422,
            "password",
            "regex",
        )
        assert answer.errors[0]["valid"] == policy
        assert reset(client, mails.token, "long enough").status == (204 if "8" in policy else 422)
    finally:
        stage.execute("UPDATE system_settings SET auth_password_policy = NULL")
