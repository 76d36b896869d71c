"""A directory beside the other settings of logins: no passwords here, and roles with more rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyotp
import pytest

from cms.app import create_app
from cms.config import Config
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.members import may, new_role
from tests.people import outcome
from tests.sso.ldap.directory import PASSWORD, Directory, dn_of, group_dn
from tests.sso.ldap.logins import REFUSED, log_in, role_of
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


@pytest.fixture
def without_passwords(stage: Stage, stage_settings: Config) -> Iterator[Client]:
    """A service with AUTH_DISABLE_DEFAULT over the same database."""
    settings = replace(stage_settings, database_url=stage.dsn, database_pool_size=3)
    client = Client(create_app(replace(settings, auth_disable_default=True)))
    yield client
    client.close()


def test_without_logins_by_password_the_directory_goes_on(without_passwords: Client) -> None:
    """Its logins come to the same address."""
    admin = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    assert outcome(without_passwords.post("/auth/login", admin)) == (403, ["INVALID_PROVIDER"])
    ada = {"identifier": "ada", "password": PASSWORD, "mode": "ldap"}
    assert "refresh_token" in without_passwords.post("/auth/login", ada).data
    wrong = {**ada, "password": "wrong"}
    assert outcome(without_passwords.post("/auth/login", wrong)) == REFUSED
    # An account of this service is none of the directory.
    assert outcome(without_passwords.post("/auth/login", {**admin, "mode": "ldap"})) == REFUSED


def test_a_role_that_asks_for_a_second_factor_asks_users_of_the_directory_too(
    stage: Stage, directory: Directory
) -> None:
    role = new_role(stage, may("system_users"), name="Guarded", enforce_tfa=True)
    directory.change(
        f"dn: {group_dn('Guarded')}\nchangetype: add\nobjectClass: groupOfNames\ncn: Guarded\n"
        f"member: {dn_of('kay')}\n"
    )
    kay = stage.anonymous.bearing(log_in(stage, "kay").data["access_token"])
    assert role_of(stage, "kay") == role
    assert kay.get("/users/me").status == 200
    assert outcome(kay.get("/users")) == (403, ["FORBIDDEN"])
    secret = kay.post("/users/me/tfa/generate", {}).data["secret"]
    code = pyotp.TOTP(secret)
    assert kay.post("/users/me/tfa/enable", {"secret": secret, "otp": code.now()}).status == 204
    assert kay.get("/users").status == 200
    assert outcome(log_in(stage, "kay")) == (401, ["INVALID_OTP"])
