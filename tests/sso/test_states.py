"""The way back from a provider: which answers belong to a login of this browser."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cms.sso import browser_login
from tests.sso.forger import Forger
from tests.sso.site import APP_URL, Browser, Site, codes_of, query_of, reason_of

pytestmark = [pytest.mark.slow, pytest.mark.release]


@pytest.fixture
def forger(site: Site, forging: Forger) -> Forger:
    settings = {
        name: forging.settings(name, redirect_allow_list=APP_URL) for name in ("openid", "other")
    }
    site.configure(settings)
    return forging


def assert_not_begun(site: Site, forger: Forger, browser: Browser, url: str) -> None:
    """The answer is refused before the provider is asked for anything."""
    answer = browser.get(url)
    assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_CREDENTIALS"])
    assert forger.requests["/token"] == 0
    assert site.users() == []
    assert browser.cookie("cms_session_token") is None


def test_an_answer_without_state_or_with_another(
    site: Site, forger: Forger, browser: Browser
) -> None:
    url = forger.answer_url(site, browser)
    state = query_of(url)["state"]
    for other in ("", "&state=", "&state=x", f"&state={state}x", f"&state={state}&state={state}"):
        assert_not_begun(site, forger, browser, f"{site.callback('openid')}?code=a{other}")
    assert browser.get(url).status_code == 200


def test_an_answer_for_another_browser(site: Site, forger: Forger, browser: Browser) -> None:
    """Otherwise somebody's page could log its visitors in as somebody else."""
    url = forger.answer_url(site, browser)
    assert_not_begun(site, forger, Browser(), url)
    stranger = Browser()
    forger.answer_url(site, stranger)
    assert_not_begun(site, forger, stranger, url)


def test_an_answer_of_another_provider(site: Site, forger: Forger, browser: Browser) -> None:
    url = forger.answer_url(site, browser)
    other = url.replace("/openid/", "/other/")
    assert_not_begun(site, forger, browser, other)
    # Even with the cookie, which a browser sends to its own provider's address only.
    for name, value in browser.session.cookies.get_dict().items():
        browser.session.cookies.set(name, value, path="/", domain="localhost.local")
    assert_not_begun(site, forger, browser, other)


def test_an_answer_that_comes_too_late(
    site: Site, forger: Forger, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_login, "LIFE", timedelta(seconds=-1))
    assert_not_begun(site, forger, browser, forger.answer_url(site, browser))


def test_an_answer_that_comes_twice(site: Site, forger: Forger, browser: Browser) -> None:
    url = forger.answer_url(site, browser)
    assert browser.get(url).status_code == 200
    again = browser.get(url)
    assert codes_of(again) == ["INVALID_CREDENTIALS"]
    assert forger.requests["/token"] == 1


def test_a_cookie_that_somebody_has_written(site: Site, forger: Forger, browser: Browser) -> None:
    url = forger.answer_url(site, browser)
    for cookie in browser.session.cookies:
        cookie.value = f"{cookie.value}x"
    assert_not_begun(site, forger, browser, url)


def test_two_tabs_log_in_at_once(site: Site, forger: Forger, browser: Browser) -> None:
    first = forger.answer_url(site, browser)
    nonce = forger.nonce
    second = forger.answer_url(site, browser)
    assert browser.get(second).status_code == 200
    forger.nonce = nonce
    assert browser.get(first).status_code == 200


@pytest.mark.parametrize("issuer", ["https://another.example.com", "", "x"])
def test_an_answer_that_names_another_issuer(
    site: Site, forger: Forger, browser: Browser, issuer: str
) -> None:
    """One of two providers could pass on the code of the other (RFC 9207)."""
    forger.document = {"authorization_response_iss_parameter_supported": True}
    assert_not_begun(site, forger, browser, forger.answer_url(site, browser, iss=issuer))
    assert_not_begun(site, forger, browser, forger.answer_url(site, browser))
    right = forger.answer_url(site, browser, iss=forger.issuer)
    assert browser.get(right).status_code == 200


def test_an_issuer_is_compared_even_where_the_provider_does_not_announce_it(
    site: Site, forger: Forger, browser: Browser
) -> None:
    url = forger.answer_url(site, browser, iss="https://another.example.com")
    assert_not_begun(site, forger, browser, url)


def test_errors_of_the_provider_are_reported_by_code(
    site: Site, forger: Forger, browser: Browser
) -> None:
    errors = {
        "access_denied": "INVALID_CREDENTIALS",
        "<script>": "INVALID_CREDENTIALS",
        "temporarily_unavailable": "SERVICE_UNAVAILABLE",
        "server_error": "SERVICE_UNAVAILABLE",
    }
    for error, code in errors.items():
        sent = browser.get(site.login_url("openid", APP_URL))
        state = query_of(sent.headers["Location"])["state"]
        url = f"{site.callback('openid')}?error={error}&error_description=secret&state={state}"
        answer = browser.get(url)
        assert reason_of(answer) == code
        assert error not in answer.headers["Location"]


def test_the_redirect_is_that_of_the_login_and_not_of_the_answer(
    site: Site, forger: Forger, browser: Browser
) -> None:
    url = forger.answer_url(site, browser, redirect="http://evil.test/")
    answer = browser.get(url)
    assert answer.status_code == 200
    assert "Location" not in answer.headers
