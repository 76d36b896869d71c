"""The interface of all drivers of login providers that the browser visits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from cms.sso.login_state import LoginState
from cms.sso.profile import Profile


class BegunLogin(NamedTuple):
    """A login that begins: the address for the browser, and the state to remember."""

    url: str
    state: LoginState


class ConfirmedUser(NamedTuple):
    """A user whom a provider has confirmed.

    `logout_url` ends the session at the provider, `refresh_token` asks it for the user again.
    """

    profile: Profile
    logout_url: str | None = None
    refresh_token: str | None = None


class ProviderClient(Protocol):
    """Logs users in at one provider."""

    def begin(self, redirect: str | None) -> BegunLogin:
        """Begin a login; raises `ProviderError`."""

    def confirmed_user(self, state: LoginState, answer: Mapping[str, str]) -> ConfirmedUser:
        """Return the user of an answer, the query with which a browser came back.

        Raises `ProviderError`, and `Refused` INVALID_CREDENTIALS for an answer that is not to be
        believed, or that says no.
        """

    def renewed_token(self, token: str) -> str | None:
        """Return the refresh token that follows one of the provider; None where it says no.

        Raises `ProviderError`.
        """

    def check(self) -> None:
        """Ask the provider all that it answers without a login; raises `ProviderError`."""

    def reach(self) -> None:
        """Ask the provider for its public documents; raises `ProviderError`.

        Unlike `check` it can be repeated every few seconds: it does not look like an attack.
        """
