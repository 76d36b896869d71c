"""What several files of tests do with the service and a provider."""

from __future__ import annotations

from typing import Any

from tests.sso.oidc import ALICE, BOB, Json, RunningProvider
from tests.sso.site import APP_URL, Site

MAKES_USERS = {"allow_public_registration": "true", "redirect_allow_list": APP_URL}


def with_openid(site: Site, provider: RunningProvider, **options: str) -> None:
    """Configure one provider, named openid, that makes users."""
    site.configure({"openid": provider.settings("openid", **(MAKES_USERS | options))})


def with_accounts(provider: RunningProvider, **changes: Json) -> None:
    """Change claims of the provider's accounts, by the names of these."""
    accounts = {"alice": ALICE, "bob": BOB}
    for name, claims in changes.items():
        accounts[name] = {**accounts.get(name, {}), **claims}
    provider.change(accounts=accounts)


def the_user(site: Site) -> dict[str, Any]:
    (user,) = site.users()
    return user
