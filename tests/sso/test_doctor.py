"""`cms doctor --providers` asks each provider of OpenID Connect and OAuth 2."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cms.cli.provider_findings import provider_findings, role_findings
from cms.cli.structure_findings import OK, WRONG, Finding
from tests.sso.forger import Forger
from tests.sso.oidc import BASIC_CLIENT, CLIENT_SECRET, RunningProvider
from tests.sso.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.release]


def finding(site: Site) -> Finding:
    (finding,) = provider_findings(site.config)
    return finding


@pytest.mark.parametrize("options", [{}, {"client": BASIC_CLIENT}])
def test_a_provider_that_works(
    site: Site, provider: RunningProvider, options: dict[str, str]
) -> None:
    site.configure({"openid": provider.settings("openid", **options)})
    text = f"provider openid: answers; register {site.callback('openid')} there"
    assert finding(site) == Finding(OK, text)


@pytest.mark.parametrize("option", ["client_id", "client_secret"])
def test_a_client_that_the_provider_does_not_know(
    site: Site, provider: RunningProvider, option: str
) -> None:
    wrong = {option: "another-one"}
    site.configure({"openid": provider.settings("openid", **wrong)})
    text = "provider openid: it knows no client of this id and secret"
    assert finding(site) == Finding(WRONG, text)


def test_oauth2(site: Site, provider: RunningProvider) -> None:
    options = {
        "driver": "oauth2",
        "client_id": BASIC_CLIENT,
        "client_secret": CLIENT_SECRET,
        "authorize_url": f"{provider.issuer}/auth",
        "access_url": f"{provider.issuer}/token",
        "profile_url": f"{provider.issuer}/profile",
    }
    for secret, level in ((CLIENT_SECRET, OK), ("wrong", WRONG)):
        options["client_secret"] = secret
        settings = {f"AUTH_GITHUB_{name}".upper(): value for name, value in options.items()}
        site.configure({"github": settings})
        assert finding(site).level == level


def test_one_that_is_down(site: Site, provider: RunningProvider) -> None:
    url = "http://127.0.0.1:1/.well-known/openid-configuration"
    site.configure({"openid": provider.settings("openid", issuer_url=url)})
    assert finding(site).level == WRONG


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"issuer": "https://another.example.com"}, "another issuer"),
        ({"jwks_uri": None}, '"jwks_uri"'),
        ({"token_endpoint": "http://provider.example.com/"}, "https"),
    ],
)
def test_one_that_is_wrong(
    site: Site, forging: Forger, document: dict[str, object], words: str
) -> None:
    site.configure({"openid": forging.settings("openid")})
    forging.document = document
    wrong = finding(site)
    assert wrong.level == WRONG
    assert words in wrong.text


def test_one_without_keys(site: Site, forging: Forger) -> None:
    site.configure({"openid": forging.settings("openid")})
    forging.published = [{"kty": "oct", "k": "AAAA"}]
    assert finding(site).level == WRONG


def test_roles_that_do_not_exist(site: Site, forging: Forger) -> None:
    site.restart(site.config)
    role = site.role("Readers")
    other = "8f2f1a0e-6a5f-4a57-b6a4-6d8c2e4a0a01"
    settings = forging.settings(
        "openid", default_role_id=role, role_mapping=f'{{"a": "{role}", "b": "{other}"}}'
    )
    site.configure({"openid": settings})
    dsn = site.config.database_url or ""
    assert list(role_findings(site.config, dsn)) == [
        Finding(WRONG, f"AUTH_OPENID_ROLE_MAPPING: there is no role {other}")
    ]
    assert list(role_findings(replace(site.config, providers=()), dsn)) == []
