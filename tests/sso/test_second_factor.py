"""Logins by a provider of users with a second factor, and of those who may not log in."""

from __future__ import annotations

from typing import Any

import pyotp
import pytest

from tests.sso.oidc import (
    RunningProvider,
)
from tests.sso.site import APP_URL, Browser, Site, codes_of, reason_of
from tests.sso.steps import the_user, with_accounts, with_openid

pytestmark = [pytest.mark.slow, pytest.mark.release]


# The second factor


def _with_factor(
    site: Site, provider: RunningProvider, redirect: str | None = None
) -> tuple[Browser, pyotp.TOTP]:
    """Return a browser whose user needs a second factor, after the provider has confirmed it."""
    with_openid(site, provider)
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    secret = pyotp.random_base32()
    site.rows("UPDATE system_users SET tfa_secret = %s WHERE provider = 'openid'", secret)
    browser = Browser()
    answer = site.log_in(browser, "openid", "alice", redirect)
    if redirect is None:
        assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_OTP"])
    else:
        assert reason_of(answer) == "INVALID_OTP"
    assert browser.cookie("cms_session_token") is None
    assert browser.cookie("cms_login_factor")
    return browser, pyotp.TOTP(secret)


def _send_code(site: Site, browser: Browser, code: str, origin: str | None = None) -> Any:
    return browser.post(
        site.login_url("openid"), json={"otp": code}, headers={"Origin": origin or site.url}
    )


def test_a_code_ends_the_login_of_a_user_with_a_second_factor(
    site: Site, provider: RunningProvider
) -> None:
    browser, totp = _with_factor(site, provider, APP_URL)
    answer = _send_code(site, browser, totp.now())
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"].keys() == {"expires"}
    assert browser.cookie("cms_session_token")
    assert browser.cookie("cms_login") is None
    left = browser.post(f"{site.url}/auth/logout", headers={"Origin": site.url})
    assert "logout_url" in left.json()["data"]


def test_a_login_without_redirect_has_both_tokens_after_its_code(
    site: Site, provider: RunningProvider
) -> None:
    browser, totp = _with_factor(site, provider)
    answer = _send_code(site, browser, totp.now())
    assert answer.json()["data"].keys() == {"access_token", "expires", "refresh_token"}
    assert browser.cookie("cms_") is None


def test_pages_of_other_sites_and_other_browsers_end_no_login(
    site: Site, provider: RunningProvider
) -> None:
    browser, totp = _with_factor(site, provider)
    answer = _send_code(site, browser, totp.now(), "http://evil.test")
    assert (answer.status_code, codes_of(answer)) == (403, ["FORBIDDEN"])
    answer = _send_code(site, Browser(), totp.now())
    assert codes_of(answer) == ["INVALID_CREDENTIALS"]


def test_wrong_codes_suspend_the_user(site: Site, provider: RunningProvider) -> None:
    browser, totp = _with_factor(site, provider)
    site.rows("UPDATE system_settings SET auth_login_attempts = 3")
    for _ in range(3):
        assert codes_of(_send_code(site, browser, "000000")) == ["INVALID_OTP"]
    assert the_user(site)["status"] == "suspended"
    assert codes_of(_send_code(site, browser, totp.now())) == ["USER_SUSPENDED"]


def test_a_login_by_the_provider_alone_does_not_forget_wrong_codes(
    site: Site, provider: RunningProvider
) -> None:
    browser, _ = _with_factor(site, provider)
    assert codes_of(_send_code(site, browser, "000000")) == ["INVALID_OTP"]
    assert codes_of(site.log_in(Browser(), "openid", "alice")) == ["INVALID_OTP"]
    assert the_user(site)["failed_logins"] == 1


def test_a_role_that_asks_for_a_second_factor_asks_users_of_providers_too(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    site.restart(site.config)
    role = site.role("Guarded", enforce_tfa=True)
    permission = {"role": role, "collection": "system_users", "action": "read", "fields": ["*"]}
    assert site.admin.post("/permissions", permission).status == 200
    with_openid(site, provider, default_role_id=role)
    assert site.log_in(browser, "openid", "alice", APP_URL).status_code == 302
    # Until there is one, nothing can be done but to set it up, which takes no password here.
    assert browser.get(f"{site.url}/users/me").status_code == 200
    assert codes_of(browser.get(f"{site.url}/users")) == ["FORBIDDEN"]
    secret = _post(site, browser, "generate", {}).json()["data"]["secret"]
    totp = pyotp.TOTP(secret)
    assert _post(site, browser, "enable", {"secret": secret, "otp": totp.now()}).status_code == 204
    assert browser.get(f"{site.url}/users").status_code == 200
    # From then on the provider alone opens no session.
    site.rows("UPDATE system_users SET tfa_step = NULL")  # the code of this half minute is used
    again = Browser()
    assert reason_of(site.log_in(again, "openid", "alice", APP_URL)) == "INVALID_OTP"
    assert again.get(f"{site.url}/users/me").status_code == 401
    assert _send_code(site, again, totp.now()).status_code == 200
    assert again.get(f"{site.url}/users").status_code == 200


def _post(site: Site, browser: Browser, step: str, body: dict[str, str]) -> Any:
    url = f"{site.url}/users/me/tfa/{step}"
    return browser.post(url, json=body, headers={"Origin": site.url})


# Who may not log in


def test_the_addresses_of_a_role_apply(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    site.restart(site.config)
    role = site.role("Office", ip_access=["10.1.2.3"])
    with_openid(site, provider, default_role_id=role)
    answer = site.log_in(browser, "openid", "alice")
    assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_IP"])
    assert browser.cookie("cms_session_token") is None
    assert reason_of(site.log_in(Browser(), "openid", "alice", APP_URL)) == "INVALID_IP"


@pytest.mark.parametrize(
    ("status", "code"),
    [("suspended", "USER_SUSPENDED"), ("draft", "INVALID_CREDENTIALS")],
)
def test_users_who_are_not_active_do_not_log_in(
    site: Site, provider: RunningProvider, browser: Browser, status: str, code: str
) -> None:
    with_openid(site, provider, sync_user_info="true")
    assert site.log_in(browser, "openid", "alice").status_code == 200
    site.rows("UPDATE system_users SET status = %s WHERE provider = 'openid'", status)
    with_accounts(provider, alice={"given_name": "Regina"})
    again = Browser()
    assert codes_of(site.log_in(again, "openid", "alice")) == [code]
    assert again.cookie("cms_session_token") is None
    assert the_user(site)["first_name"] == "Alice"
