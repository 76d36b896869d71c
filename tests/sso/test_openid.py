"""Logins by OpenID Connect, as users see them."""

from __future__ import annotations

import pytest

from tests.sso.oidc import BASIC_CLIENT, ES256_CLIENT, POST_CLIENT, PS256_CLIENT, RunningProvider
from tests.sso.site import APP_URL, Browser, Site, codes_of

pytestmark = [pytest.mark.slow, pytest.mark.release]


def with_openid(site: Site, provider: RunningProvider, **options: str) -> None:
    """Configure one provider that makes users."""
    defaults = {"allow_public_registration": "true", "redirect_allow_list": APP_URL}
    site.configure({"openid": provider.settings("openid", **(defaults | options))})


def test_the_first_login_makes_a_user_and_the_next_one_finds_it(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    answer = site.log_in(browser, "openid", "alice")
    assert answer.status_code == 200, answer.text
    (user,) = site.users()
    assert (user["provider"], user["external_identifier"]) == ("openid", "alice")
    assert (user["email"], user["first_name"], user["last_name"]) == (
        "alice@example.com",
        "Alice",
        "Liddell",
    )
    assert (user["role"], user["password"], user["status"]) == (None, None, "active")
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    assert [again["id"] for again in site.users()] == [user["id"]]


@pytest.mark.parametrize("client", [POST_CLIENT, BASIC_CLIENT, ES256_CLIENT, PS256_CLIENT])
def test_clients_of_every_kind_log_in(
    site: Site, provider: RunningProvider, browser: Browser, client: str
) -> None:
    with_openid(site, provider, client=client)
    answer = site.log_in(browser, "openid", "alice")
    assert answer.status_code == 200, answer.text


def test_without_registration_nobody_gets_an_account(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, allow_public_registration="false")
    answer = site.log_in(browser, "openid", "alice")
    assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_CREDENTIALS"])
    assert site.users() == []
