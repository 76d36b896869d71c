"""The service's own second factor, of users whom a provider logs in."""

from __future__ import annotations

import pyotp
import pytest

from tests.client import Answer
from tests.people import OWN_ORIGIN, of_user
from tests.sso.saml.logins import APP, Browser, Login, user
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


class Person:
    """A user of the provider with a second factor, and a browser of theirs."""

    def __init__(self, stage: Stage, login: Login, name: str) -> None:
        self.stage = stage
        self.login = login
        self.name = name
        self.browser = Browser(stage)
        self.browser.send_form(login.form(self.browser, user(name), APP))
        self.secret = self.post("/users/me/tfa/generate", {}).data["secret"]
        enabled = {"secret": self.secret, "otp": pyotp.TOTP(self.secret).now()}
        assert self.post("/users/me/tfa/enable", enabled).status == 204
        with stage.side_door.connection() as connection:
            # The code of this half minute has been used.
            connection.execute(b"UPDATE system_users SET tfa_step = NULL")

    def post(self, path: str, body: object, *, origin: str = OWN_ORIGIN) -> Answer:
        cookies = "; ".join(f"{name}={value}" for name, value in self.browser.cookies.items())
        return self.stage.anonymous.send("POST", path, body, Cookie=cookies, Origin=origin)

    def log_in(self, redirect: str | None = None) -> Answer:
        self.browser = Browser(self.stage)
        return self.browser.send_form(self.login.form(self.browser, user(self.name), redirect))

    def send_code(self, code: str, **options: str) -> Answer:
        return self.post("/auth/login/campus", {"otp": code}, **options)


def test_it_is_asked_for_after_the_provider_has_confirmed_the_user(
    stage: Stage, login: Login
) -> None:
    person = Person(stage, login, "barbara")
    answer = person.log_in(APP)
    assert answer.headers["location"] == f"{APP}?reason=INVALID_OTP"
    assert "cms_session_token" not in answer.cookies
    answer = person.send_code(pyotp.TOTP(person.secret).now())
    assert answer.status == 200
    assert answer.cookies["cms_session_token"].value


def test_a_wrong_code_counts_as_a_failed_login(stage: Stage, login: Login) -> None:
    person = Person(stage, login, "frances")
    assert person.log_in().codes == ["INVALID_OTP"]
    answer = person.send_code("000000")
    assert (answer.status, answer.codes) == (401, ["INVALID_OTP"])
    assert of_user(stage, "frances@example.com", "failed_logins") == 1


def test_while_a_user_has_to_wait_no_code_is_right(stage: Stage, login: Login) -> None:
    person = Person(stage, login, "evelyn")
    assert person.log_in().codes == ["INVALID_OTP"]
    with stage.side_door.connection() as connection:
        query = b"UPDATE system_users SET login_after = now() + interval '1 minute'"
        connection.execute(query + b" WHERE external_identifier = 'evelyn'")
    code = pyotp.TOTP(person.secret).now()
    assert person.send_code(code).codes == ["INVALID_OTP"]
    assert person.send_code("000000").codes == ["INVALID_OTP"]
    assert of_user(stage, "evelyn@example.com", "failed_logins") == 0
    with stage.side_door.connection() as connection:
        connection.execute(b"UPDATE system_users SET login_after = NULL")
    assert person.send_code(code).status == 200


def test_without_the_cookie_of_the_login_no_code_opens_anything(stage: Stage, login: Login) -> None:
    person = Person(stage, login, "kay")
    code = {"otp": pyotp.TOTP(person.secret).now()}
    answer = stage.anonymous.send("POST", "/auth/login/campus", code, Origin=OWN_ORIGIN)
    assert answer.codes == ["INVALID_CREDENTIALS"]
    person.log_in()
    answer = person.send_code(code["otp"], origin="https://evil.example.com")
    assert answer.codes == ["FORBIDDEN"]


def test_who_logged_in_long_ago_or_by_password_sends_no_empty_password(
    stage: Stage, login: Login
) -> None:
    answer = stage.admin.post("/users/me/tfa/generate", {})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    browser = Browser(stage)
    browser.send_form(login.form(browser, user("jean"), APP))
    with stage.side_door.connection() as connection:
        connection.execute(b"UPDATE system_sessions SET created = now() - interval '11 minutes'")
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    answer = stage.anonymous.send(
        "POST", "/users/me/tfa/generate", {}, Cookie=cookies, Origin=OWN_ORIGIN
    )
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
