"""Logins by OAuth 2 and OpenID Connect: the way to the provider, and its answer."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus

import requests
from authlib.common.urls import add_params_to_uri
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session

from cms.config.providers import OPENID, Provider
from cms.sso.browser_login import BegunLogin, ConfirmedUser, LoginState
from cms.sso.openid import Discovery, Endpoints, Expected, InvalidIdToken, checked_claims
from cms.sso.profile import Profile, profile_from_claims
from cms.sso.provider_errors import ProviderError, login_refused
from cms.sso.transport import ProviderTransport, fetch_object

_BASIC = "client_secret_basic"
# Errors of authlib for an unexpected answer; the last one is for deeply nested JSON.
_UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)

_UNKNOWN_CLIENT = frozenset({"invalid_client", "incorrect_client_credentials"})
"""The standard's word, and that of GitHub."""
_REFUSED_TOKEN = frozenset(
    {
        "invalid_grant",
        "bad_refresh_token",
        "access_denied",
        "login_required",
        "interaction_required",
    }
)
"""The user, or the session at the provider, is gone; the second word is GitHub's."""
_TEMPORARY_ERRORS = frozenset({"temporarily_unavailable", "server_error"})


class OAuthClient:
    """Logs users in at one provider; `callback` is the address to which it sends them back."""

    def __init__(self, provider: Provider, *, callback: str, secret: str) -> None:
        self._provider = provider
        self._callback = callback
        self._secret = secret
        self._discovery = Discovery(provider)

    def begin(self, redirect: str | None) -> BegunLogin:
        """Return where a browser begins the login; raises `ProviderError`."""
        state = LoginState.begin(self._provider.name, redirect)
        with self._session() as session:
            endpoints = self._discovery.endpoints(session)
            extra: dict[str, str] = dict(self._provider.params)
            if self._provider.driver == OPENID:
                extra["nonce"] = state.nonce(self._secret)
            url, _ = session.create_authorization_url(
                endpoints.authorize,
                state=state.id,
                code_verifier=state.code_verifier(self._secret),
                **extra,
            )
        return BegunLogin(str(url), state)

    def confirmed_user(self, state: LoginState, answer: Mapping[str, str]) -> ConfirmedUser:
        """Return the user of a provider's answer, the query with which a browser came back.

        Raises `ProviderError`, and `Refused` INVALID_CREDENTIALS for an answer that is not to be
        believed, or that says no.
        """
        with self._session() as session:
            endpoints = self._discovery.endpoints(session)
            self._check_answer(endpoints, answer)
            try:
                tokens = self._tokens_of(session, endpoints, self._grant(state, answer["code"]))
            except OAuthError as error:
                # A code that was used, or is too old, and also wrong settings of the client.
                reason = f"no token for the code: {str(error.error)[:60]!r}"
                raise login_refused(self._provider, reason) from None
            claims = self._id_claims(session, endpoints, state, tokens)
            details = self._details(session, endpoints, claims, token=tokens["access_token"])
        logout_url = self._logout_url(endpoints, tokens)
        return ConfirmedUser(self._profile(claims, details), logout_url, _refresh_token(tokens))

    def renewed_token(self, token: str) -> str | None:
        """Return the refresh token that follows one of the provider; None where it says no.

        Raises `ProviderError`.
        """
        with self._session() as session:
            endpoints = self._discovery.endpoints(session)
            # Without the scope of the settings: the provider may have granted less.
            grant = {"grant_type": "refresh_token", "refresh_token": token, "scope": ""}
            try:
                tokens = self._tokens_of(session, endpoints, grant)
            except OAuthError as error:
                if error.error in _REFUSED_TOKEN:
                    return None
                raise ProviderError(f"it renews no token: {str(error.error)[:60]!r}") from None
        return _refresh_token(tokens) or token

    def check(self) -> None:
        """Ask for the provider's documents, and try the client; raises `ProviderError`.

        The answer to an invented code shows whether the provider accepts the client.
        """
        with self._session() as session:
            endpoints = self._reached_endpoints(session)
            state = LoginState.begin(self._provider.name, None)
            try:
                self._tokens_of(session, endpoints, self._grant(state, "none"))
            except OAuthError as error:
                if error.error in _UNKNOWN_CLIENT:
                    raise ProviderError("it knows no client of this id and secret") from None

    def reach(self) -> None:
        """Ask for the public documents; raises `ProviderError`."""
        with self._session() as session:
            self._reached_endpoints(session)

    def _reached_endpoints(self, session: OAuth2Session) -> Endpoints:
        endpoints = self._discovery.endpoints(session)
        if endpoints.keys and not self._discovery.keys(session).keys:
            raise ProviderError("the list of keys has none that can be used here")
        return endpoints

    def _session(self) -> OAuth2Session:
        session = OAuth2Session(
            client_id=self._provider.client_id,
            client_secret=self._provider.client_secret,
            scope=self._provider.scope,
            redirect_uri=self._callback,
            code_challenge_method="S256",
        )
        session.register_client_auth_method((_BASIC, _add_basic_credentials))
        # Nothing of the machine's own: no proxies, no passwords in ~/.netrc.
        session.trust_env = False
        transport = ProviderTransport(self._provider)
        session.mount("https://", transport)
        session.mount("http://", transport)
        return session

    def _check_answer(self, endpoints: Endpoints, answer: Mapping[str, str]) -> None:
        issuer = answer.get("iss")
        # Otherwise one provider could pass another's code on (RFC 9207).
        if endpoints.issuer and (issuer or endpoints.names_issuer) and issuer != endpoints.issuer:
            raise login_refused(self._provider, "the answer is that of another issuer")
        error = answer.get("error")
        if error in _TEMPORARY_ERRORS:
            raise ProviderError(f"it answers {error}")
        if error or not answer.get("code"):
            # Not the text of the answer: anybody may have written it.
            raise login_refused(self._provider, "the provider or the user said no")

    def _grant(self, state: LoginState, code: str) -> Mapping[str, str]:
        """Return the parameters with which a code is exchanged for tokens."""
        verifier = state.code_verifier(self._secret)
        return {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}

    def _tokens_of(
        self, session: OAuth2Session, endpoints: Endpoints, grant: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Return the tokens for a code or a refresh token.

        Raises `OAuthError` where the provider refuses them, and `ProviderError`.
        """
        for method in endpoints.auth_methods:
            session.token_endpoint_auth_method = method
            try:
                return _tokens_by(session, endpoints.access, grant)
            except OAuthError as error:
                # A provider checks the client first, so what it grants tokens for is still unused
                # and the next method can send it again.
                if error.error != "invalid_client" or method == endpoints.auth_methods[-1]:
                    raise
        raise ProviderError("it takes no secret of a client")

    def _id_claims(
        self,
        session: OAuth2Session,
        endpoints: Endpoints,
        state: LoginState,
        tokens: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Return the claims of the ID token; none for OAuth 2."""
        if endpoints.issuer is None:
            return {}
        token = tokens.get("id_token")
        if not isinstance(token, str):
            raise ProviderError("no ID token comes back")
        expected = Expected(
            issuer=endpoints.issuer,
            client_id=self._provider.client_id,
            nonce=state.nonce(self._secret),
            access_token=tokens["access_token"],
        )
        try:
            return checked_claims(token, expected, self._discovery, session)
        except InvalidIdToken as error:
            raise login_refused(self._provider, str(error)) from None

    def _details(
        self,
        session: OAuth2Session,
        endpoints: Endpoints,
        claims: Mapping[str, Any],
        *,
        token: str,
    ) -> Mapping[str, Any]:
        """Return the profile of a user at the provider, beside the claims of the ID token."""
        if endpoints.profile is None:
            return {}
        details = fetch_object(session, endpoints.profile, "the profile", token=token)
        # A token of another user could have been put in place of this one's.
        if "sub" in claims and details.get("sub") != claims["sub"]:
            raise login_refused(self._provider, "the profile is that of another user")
        return details

    def _profile(self, claims: Mapping[str, Any], details: Mapping[str, Any]) -> Profile:
        # The details come later and so are newer.
        profile = profile_from_claims(self._provider, {**claims, **details})
        # `email_verified` speaks of the `email` beside it, and of no other address.
        source = details if "email_verified" in details else claims
        is_same = str(source.get("email")).strip() == profile.email
        return replace(profile, is_email_verified=profile.is_email_verified and is_same)

    def _logout_url(self, endpoints: Endpoints, tokens: Mapping[str, Any]) -> str | None:
        if endpoints.end_session is None:
            return None
        parameters = {"client_id": self._provider.client_id, "id_token_hint": tokens["id_token"]}
        return str(add_params_to_uri(endpoints.end_session, list(parameters.items())))


def _tokens_by(session: OAuth2Session, url: str, grant: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the tokens; raises `OAuthError` where the provider refuses them."""
    try:
        # The secret goes nowhere else.
        tokens: Mapping[str, Any] = session.fetch_token(url, allow_redirects=False, **grant)
    except (requests.RequestException, *_UNREADABLE) as error:
        raise ProviderError(f"no token comes back ({type(error).__name__})") from None
    token = tokens.get("access_token")
    if not isinstance(token, str) or not token:
        raise ProviderError("no token comes back")
    return tokens


def _refresh_token(tokens: Mapping[str, Any]) -> str | None:
    token = tokens.get("refresh_token")
    return token if isinstance(token, str) and token else None


def _add_basic_credentials(
    client: Any, _method: str, url: str, headers: dict[str, str], body: str
) -> tuple[str, dict[str, str], str]:
    """Put id and secret into the header, form-encoded (RFC 6749, section 2.3.1)."""
    text = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    headers["Authorization"] = f"Basic {base64.b64encode(text.encode()).decode()}"
    return url, headers, body
