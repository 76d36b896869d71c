"""Logins by OpenID Connect, as users see them."""

from __future__ import annotations

import pytest
import requests

from cms.cli.worker import tasks_of
from cms.jobs.job_worker import drain
from cms.sso import openid
from tests.active_flows import make_flow, runs, step
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.sso.oidc import (
    RunningProvider,
    ec_key,
    rsa_key,
)
from tests.sso.site import APP_URL, Browser, Site, codes_of, query_of, reason_of, target_of
from tests.sso.steps import MAKES_USERS, the_user, with_openid

pytestmark = [pytest.mark.slow, pytest.mark.release]


# The session


def test_without_redirect_the_answer_has_both_tokens_whatever_the_mode_is(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    for mode in ("session", "cookie", "json"):
        with_openid(site, provider, mode=mode)
        browser = Browser()
        answer = site.log_in(browser, "openid", "alice")
        assert answer.json()["data"].keys() == {"access_token", "expires", "refresh_token"}, mode
        assert answer.headers["Cache-Control"] == "no-store"
        assert browser.cookie("cms_") is None, mode


def test_with_redirect_the_mode_chooses_the_cookie(site: Site, provider: RunningProvider) -> None:
    cookies = {"session": "session_token", "cookie": "refresh_token", "json": "refresh_token"}
    for mode, name in cookies.items():
        with_openid(site, provider, mode=mode)
        browser = Browser()
        assert site.log_in(browser, "openid", "alice", APP_URL).status_code == 302
        assert [
            cookie.name for cookie in browser.session.cookies if cookie.name.startswith("cms_")
        ] == [f"cms_{name}"], mode


def test_with_redirect_the_browser_has_a_session_and_goes_on(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    answer = site.log_in(browser, "openid", "alice", f"{APP_URL}?tab=1")
    assert (answer.status_code, target_of(answer)) == (302, f"{APP_URL}?tab=1")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert browser.cookie("cms_login") is None, "the state is forgotten"
    me = browser.get(f"{site.url}/users/me").json()["data"]
    assert me["id"] == the_user(site)["id"]


def test_no_address_has_tokens_in_it(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, mode="json")
    answer = site.log_in(browser, "openid", "alice", APP_URL)
    assert (answer.status_code, target_of(answer)) == (302, APP_URL)
    assert browser.cookie("cms_refresh_token")


def test_a_redirect_that_is_not_allowed_is_refused_before_anything_begins(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    answer = browser.get(site.login_url("openid", "http://evil.test/signed-in"))
    assert (answer.status_code, codes_of(answer)) == (400, ["INVALID_QUERY"])
    assert browser.cookie("cms_") is None


def test_the_activity_names_the_provider_and_flows_hear_of_the_login(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    keep = step("keep", "transform", {"json": "{{$trigger}}"})
    options = {"type": "action", "scope": ["auth.login"]}
    flow = make_flow(site.admin, "event", options, [keep])
    assert site.log_in(browser, "openid", "alice").status_code == 200
    user = the_user(site)["id"]
    actions = site.rows(
        """
        SELECT action, comment FROM system_activity
        WHERE item = %s AND collection = 'system_users' ORDER BY id
        """,
        user,
    )
    assert actions == [("create", None), ("login", "openid")]
    database = site.admin.app.store.database
    drain(site.config, database, tasks_of(site.config, database))
    (run,) = runs(site.admin, flow)
    assert run["result"] == {"event": "auth.login", "payload": {"user": user}}


def test_logout_leads_to_the_end_of_the_session_at_the_provider(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    assert site.log_in(browser, "openid", "alice", APP_URL).status_code == 302
    # The provider knows the browser: it asks nobody.
    again = browser.follow(browser.get(site.login_url("openid")), until=site.callback("openid"))
    assert target_of(again).startswith(site.callback("openid"))
    left = browser.post(f"{site.url}/auth/logout", headers={"Origin": site.url})
    assert left.status_code == 200, left.text
    assert browser.cookie("cms_session_token") is None
    page = browser.get(left.json()["data"]["logout_url"])
    assert page.status_code == 200, page.text
    confirmed = _submit(browser, page, logout="yes")
    assert confirmed.status_code in (302, 303), confirmed.text
    after = browser.follow(browser.get(site.login_url("openid")), until=site.callback("openid"))
    assert "<form" in after.text, "the provider asks who it is"


def _submit(browser: Browser, page: requests.Response, **fields: str) -> requests.Response:
    """Send the only form of a page with its hidden fields."""
    text = page.text
    action = text.split('action="')[1].split('"')[0]
    xsrf = text.split('name="xsrf" value="')[1].split('"')[0]
    return browser.post(action, data={"xsrf": xsrf, **fields})


# The list of providers


def test_everybody_sees_which_providers_there_are(site: Site, provider: RunningProvider) -> None:
    site.configure(
        {
            "openid": provider.settings("openid", label="Work", icon="badge"),
            "other": provider.settings("other"),
        },
        AUTH_DISABLE_DEFAULT="true",
    )
    answer = site.anonymous.get("/auth")
    assert answer.body == {
        "data": [
            {"name": "openid", "driver": "openid", "label": "Work", "icon": "badge"},
            {"name": "other", "driver": "openid", "label": "other", "icon": None},
        ],
        "disableDefault": True,
    }
    admin = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    refused = site.anonymous.post("/auth/login", admin)
    assert (refused.status, refused.codes) == (403, ["INVALID_PROVIDER"])


def test_without_logins_by_password_those_by_a_provider_go_on(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    settings = {"openid": provider.settings("openid", **MAKES_USERS)}
    admin = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    site.configure(settings, AUTH_DISABLE_DEFAULT="false")
    assert site.anonymous.get("/auth").body["disableDefault"] is False
    assert site.anonymous.post("/auth/login", admin).status == 200
    site.configure(settings, AUTH_DISABLE_DEFAULT="true")
    for mode in ("json", "cookie", "session"):
        refused = site.anonymous.post("/auth/login", {**admin, "mode": mode})
        assert (refused.status, refused.codes) == (403, ["INVALID_PROVIDER"]), refused
    # Whether the password is right, or there is an account, nobody learns.
    for wrong in ({**admin, "password": "x"}, {**admin, "email": "nobody@example.com"}):
        assert site.anonymous.post("/auth/login", wrong).text == refused.text
    assert site.rows("SELECT id FROM system_users WHERE failed_logins > 0") == []
    assert site.log_in(browser, "openid", "alice", APP_URL).status_code == 302
    assert browser.get(f"{site.url}/users/me").status_code == 200


def test_two_providers_at_once_have_users_of_their_own(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    site.configure({name: provider.settings(name, **MAKES_USERS) for name in ("openid", "other")})
    assert site.log_in(browser, "openid", "alice").status_code == 200
    assert site.log_in(Browser(), "other", "bob").status_code == 200
    users = [(user["provider"], user["external_identifier"]) for user in site.users()]
    assert users == [("openid", "alice"), ("other", "bob")]


def test_a_provider_that_there_is_not_is_refused(site: Site, provider: RunningProvider) -> None:
    with_openid(site, provider)
    for path in ("/auth/login/github", "/auth/login/github/callback?code=a&state=b"):
        answer = site.anonymous.get(path)
        assert (answer.status, answer.codes) == (403, ["INVALID_PROVIDER"]), answer
    answer = site.anonymous.post("/auth/login/github", {"otp": "123456"})
    assert (answer.status, answer.codes) == (403, ["INVALID_PROVIDER"])


# What is asked of the provider


def test_the_provider_is_asked_with_pkce_and_takes_no_login_without(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, params='{"prompt": "login"}')
    url = target_of(browser.get(site.login_url("openid")))
    query = query_of(url)
    assert query["code_challenge_method"] == "S256"
    assert query["prompt"] == "login"
    assert query["redirect_uri"] == site.callback("openid")
    challenge = f"&code_challenge={query['code_challenge']}"
    without = url.replace(challenge, "").replace("&code_challenge_method=S256", "")
    refused = target_of(browser.get(without))
    assert query_of(refused)["error"] == "invalid_request"
    answer = browser.get(refused)
    assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_CREDENTIALS"])


def test_a_verifier_of_another_login_gets_no_token(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    """As for somebody who has stolen a code, and brings it to a login of their own."""
    with_openid(site, provider)
    stolen = query_of(site.answer_url(Browser(), "openid", "alice"))["code"]
    own = site.answer_url(browser, "openid", "bob")
    answer = browser.get(own.replace(query_of(own)["code"], stolen))
    assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_CREDENTIALS"])
    assert site.users() == []


def test_a_user_who_refuses_is_sent_back_with_that_reason(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    assert codes_of(site.log_in(browser, "openid", "")) == ["INVALID_CREDENTIALS"]
    assert reason_of(site.log_in(Browser(), "openid", "", APP_URL)) == "INVALID_CREDENTIALS"


# Keys that change


def test_logins_go_on_when_the_provider_changes_its_keys(
    site: Site, provider: RunningProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openid, "KEYS_SECONDS", 0.0)
    with_openid(site, provider)
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    # First beside the old one, as providers do it, then instead of it.
    old = provider.setup.keys
    for keys in ([rsa_key("new"), *old], [rsa_key("newer")]):
        provider.change(keys=[*keys, ec_key("curve")])
        answer = site.log_in(Browser(), "openid", "alice")
        assert answer.status_code == 200, answer.text
