"""Logins by OAuth 2 alone: opaque tokens, and a route that describes the user."""

from __future__ import annotations

import pytest

from tests.sso.oidc import BASIC_CLIENT, CLIENT_SECRET, POST_CLIENT, RunningProvider
from tests.sso.site import Browser, Site, codes_of, query_of, target_of
from tests.sso.steps import the_user, with_accounts

pytestmark = [pytest.mark.slow, pytest.mark.release]


def with_github(site: Site, provider: RunningProvider, **options: str) -> None:
    """Configure a provider of OAuth 2 whose users have numbers, as those of GitHub."""
    values = {
        "driver": "oauth2",
        "client_id": BASIC_CLIENT,
        "client_secret": CLIENT_SECRET,
        "authorize_url": f"{provider.issuer}/auth",
        "access_url": f"{provider.issuer}/token",
        "profile_url": f"{provider.issuer}/profile",
        "scope": "profile",
        "identifier_key": "id",
        "allow_public_registration": "true",
        **options,
    }
    settings = {f"AUTH_GITHUB_{name}".upper(): value for name, value in values.items()}
    site.configure({"github": settings})


@pytest.mark.parametrize("client", [BASIC_CLIENT, POST_CLIENT])
def test_the_profile_identifies_the_user(
    site: Site, provider: RunningProvider, browser: Browser, client: str
) -> None:
    with_github(site, provider, client_id=client, first_name_key="login")
    answer = site.log_in(browser, "github", "alice")
    assert answer.status_code == 200, answer.text
    user = the_user(site)
    assert (user["external_identifier"], user["email"]) == ("4711", None)
    assert (user["first_name"], user["last_name"]) == ("alice", None)
    assert site.log_in(Browser(), "github", "alice").status_code == 200
    assert the_user(site)["id"] == user["id"]


def test_keys_lead_into_nested_objects(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_github(site, provider, email_key="user.email", identifier_key="user.email")
    assert site.log_in(browser, "github", "alice").status_code == 200
    user = the_user(site)
    assert (user["external_identifier"], user["email"]) == ("alice@work.test", "alice@work.test")


def test_the_address_identifies_users_unless_the_settings_name_something_else(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_github(site, provider, identifier_key="")
    assert site.log_in(browser, "github", "bob").status_code == 200
    assert the_user(site)["external_identifier"] == "bob@example.com"
    # This one has no address, and so nothing that identifies it.
    refused = site.log_in(Browser(), "github", "alice")
    assert (refused.status_code, codes_of(refused)) == (503, ["SERVICE_UNAVAILABLE"])


def test_addresses_without_a_word_of_the_provider_are_not_verified(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_github(site, provider, require_verified_email="true")
    assert codes_of(site.log_in(browser, "github", "bob")) == ["INVALID_CREDENTIALS"]
    assert site.users() == []


def test_pkce_and_state_without_nonce(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_github(site, provider)
    query = query_of(target_of(browser.get(site.login_url("github"))))
    assert query["code_challenge_method"] == "S256"
    assert query.keys() >= {"state", "code_challenge"}
    assert "nonce" not in query


def test_logout_knows_nothing_of_the_provider(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_github(site, provider)
    issued = site.log_in(browser, "github", "alice").json()["data"]
    token = {"refresh_token": issued["refresh_token"]}
    left = browser.post(f"{site.url}/auth/logout", json=token)
    assert left.status_code == 204


def test_a_user_whose_profile_has_another_number_is_another_user(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_github(site, provider)
    assert site.log_in(browser, "github", "alice").status_code == 200
    with_accounts(provider, alice={"profile": {"id": 5, "email": None}})
    assert site.log_in(Browser(), "github", "alice").status_code == 200
    assert [user["external_identifier"] for user in site.users()] == ["4711", "5"]
