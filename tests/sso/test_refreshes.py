"""Refreshes of sessions whose provider gave a refresh token of its own (docs/sso.md)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyotp
import pytest
import requests

from tests.client import Answer
from tests.sso.forger import Forger, Handler
from tests.sso.oidc import ALICE, BOB, REFRESH_CLIENT, RunningProvider
from tests.sso.site import Browser, Site, codes_of
from tests.sso.steps import MAKES_USERS

pytestmark = [pytest.mark.slow, pytest.mark.release]


def _log_in(site: Site, provider: RunningProvider, account: str = "alice") -> str:
    """Log a user in; return the refresh token of the service."""
    settings = provider.settings("openid", client=REFRESH_CLIENT, **MAKES_USERS)
    site.configure({"openid": settings})
    answer = site.log_in(Browser(), "openid", account)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["data"]["refresh_token"])


def _refresh(site: Site, token: str) -> Answer:
    return site.anonymous.post("/auth/refresh", {"refresh_token": token})


def _stored(site: Site) -> list[str]:
    return [row[0] for row in site.rows("SELECT provider_token FROM system_sessions")]


def test_each_refresh_uses_the_providers_last_token(site: Site, provider: RunningProvider) -> None:
    token = _log_in(site, provider)
    seen = set(_stored(site))
    for _ in range(3):
        answer = _refresh(site, token)
        assert answer.status == 200, answer
        token = answer.data["refresh_token"]
        seen.update(_stored(site))
    assert len(seen) == 4


def test_two_tabs_that_refresh_at_once_use_a_token_of_the_provider_once(
    site: Site, provider: RunningProvider
) -> None:
    token = _log_in(site, provider)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: _refresh(site, token), range(4)))
    assert [answer.status for answer in answers] == [200] * 4
    (following,) = {answer.data["refresh_token"] for answer in answers}
    assert _refresh(site, following).status == 200


def test_who_is_gone_at_the_provider_is_out_at_the_next_refresh(
    site: Site, provider: RunningProvider
) -> None:
    token = _log_in(site, provider)
    provider.change(accounts={"bob": BOB})
    answer = _refresh(site, token)
    assert (answer.status, answer.codes) == (401, ["INVALID_CREDENTIALS"])
    provider.change(accounts={"alice": ALICE, "bob": BOB})
    assert _refresh(site, token).status == 401
    rows = site.rows("SELECT comment FROM system_activity WHERE action = 'logout'")
    assert rows == [("openid",)]


# With answers that a test sets


def _log_in_by(site: Site, forger: Forger, **token: object) -> str:
    site.configure({"openid": forger.settings("openid")})
    forger.token = token
    browser = Browser()
    answer = browser.get(forger.answer_url(site, browser))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["data"]["refresh_token"])


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, "broken"),
        (200, "no JSON"),
        (400, '{"error": "temporarily_unavailable"}'),
        (401, '{"error": "invalid_client"}'),
    ],
)
def test_a_provider_that_does_not_answer_rightly_ends_no_session(
    site: Site, forging: Forger, status: int, text: str
) -> None:
    token = _log_in_by(site, forging, refresh_token="from-the-provider")
    forging.raw["/token"] = lambda handler: handler.send_text(text, status=status)
    for _ in range(2):
        answer = _refresh(site, token)
        assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"]), answer
        assert answer.headers["retry-after"]
    del forging.raw["/token"]
    assert _refresh(site, token).status == 200


def test_the_token_of_the_provider_stays_where_it_gives_no_other(
    site: Site, forging: Forger
) -> None:
    token = _log_in_by(site, forging, refresh_token="from-the-provider")
    sent: list[dict[str, str]] = []
    forging.token = {"id_token": None}

    def answer(handler: Handler) -> None:
        sent.append(handler.fields)
        handler.send_text('{"access_token": "another", "token_type": "Bearer"}')

    forging.raw["/token"] = answer
    for _ in range(2):
        token = _refresh(site, token).data["refresh_token"]
    fields = {"grant_type": "refresh_token", "refresh_token": "from-the-provider"}
    assert [fields.items() <= form.items() for form in sent] == [True, True]
    assert all("scope" not in form for form in sent)


def test_a_session_without_a_token_of_the_provider_goes_on_by_itself(
    site: Site, forging: Forger
) -> None:
    token = _log_in_by(site, forging)
    assert forging.requests["/token"] == 1
    assert _refresh(site, token).status == 200
    assert forging.requests["/token"] == 1


def test_sessions_of_a_provider_that_the_settings_no_longer_have_are_not_renewed(
    site: Site, forging: Forger
) -> None:
    token = _log_in_by(site, forging)
    site.configure({"other": forging.settings("other")})
    answer = _refresh(site, token)
    assert (answer.status, answer.codes) == (403, ["INVALID_PROVIDER"])
    site.configure({"openid": forging.settings("openid")})
    assert _refresh(site, token).status == 200


def test_the_token_of_the_provider_is_stored_where_nobody_can_read_it(
    site: Site, forging: Forger
) -> None:
    token = _log_in_by(site, forging, refresh_token="from-the-provider")
    (stored,) = _stored(site)
    assert "from-the-provider" not in stored
    # With another secret it opens no more than it would for a thief of the table.
    site.rows("UPDATE system_sessions SET provider_token = 'x' || provider_token")
    assert _refresh(site, token).status == 401


def _pending(
    site: Site, forger: Forger, refresh_token: str
) -> tuple[Browser, pyotp.TOTP, requests.Response]:
    """Return a browser whose login waits for a code, and the answer that says so."""
    _log_in_by(site, forger)
    secret = pyotp.random_base32()
    site.rows("UPDATE system_users SET tfa_secret = %s WHERE provider = 'openid'", secret)
    forger.token = {"refresh_token": refresh_token}
    browser = Browser()
    answer = browser.get(forger.answer_url(site, browser))
    return browser, pyotp.TOTP(secret), answer


def test_a_login_with_a_second_factor_keeps_the_token_of_the_provider(
    site: Site, forging: Forger
) -> None:
    browser, totp, _ = _pending(site, forging, "from-the-provider" * 100)
    issued = browser.post(
        site.login_url("openid"), json={"otp": totp.now()}, headers={"Origin": site.url}
    ).json()["data"]
    forging.raw["/token"] = lambda handler: handler.send_text(
        '{"error": "invalid_grant"}', status=400
    )
    assert _refresh(site, issued["refresh_token"]).status == 401


def test_a_token_that_is_too_long_for_the_cookie_of_a_second_factor_is_the_providers_fault(
    site: Site, forging: Forger
) -> None:
    browser, _, answer = _pending(site, forging, pyotp.random_base32(8_000))
    assert codes_of(answer) == ["SERVICE_UNAVAILABLE"]
    assert browser.cookie("cms_login_factor") is None
