"""/auth and /users/me: logins, sessions, and the current user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import falcon

from cms.auth import sessions
from cms.auth.login import Credentials, login
from cms.auth.sessions import IssuedTokens, Issuer, Mode
from cms.auth.signed_in_calls import set_last_page
from cms.config import Config
from cms.errors import invalid_payload, invalid_provider, invalid_query, no_object
from cms.http.answers.envelope import send, send_with_etag, send_without_etag, send_written
from cms.http.items import params_of, write_target
from cms.http.middleware.rate_limit import count_account
from cms.http.requests.cookies import Cookies, refresh_token_of
from cms.http.requests.media import (
    check_texts,
    idempotency_key_of,
    optional_text,
    read_json,
    read_json_object,
    required_text,
)
from cms.http.requests.origins import Origins
from cms.http.requests.request import Request
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import read_me
from cms.items.write.writes import update_me
from cms.schema.system import USERS
from cms.store.store import Store


class ProvidersResource:
    def __init__(self, config: Config) -> None:
        self._config = config

    def on_get(self, request: Request, response: falcon.Response) -> None:
        """List the ways to log in besides the password."""
        providers = [provider.listed() for provider in self._config.providers]
        disables_default = self._config.auth_disable_default
        response.media = {"data": providers, "disableDefault": disables_default}


class LoginResource:
    """Logins by a password of this service, or by the directory of the name `ldap`."""

    def __init__(
        self,
        store: Store,
        issuer: Issuer,
        cookies: Cookies,
        config: Config,
        directory_login: Callable[..., IssuedTokens],
    ) -> None:
        self._store = store
        self._issuer = issuer
        self._cookies = cookies
        self._directory_login = directory_login
        self._disables_default = config.auth_disable_default

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
        if payload.get("mode") == "ldap":
            # The mode says how to log in here, and not where the tokens go.
            issued = self._directory_login(request, "ldap", payload, mode=Mode.JSON)
            send(response, session_body(issued))
            return
        if self._disables_default:
            raise invalid_provider("Logins by password are switched off here.")
        check_texts(payload, "email", "password", optional=("otp",))
        credentials = Credentials(
            required_text(payload, "email"),
            required_text(payload, "password"),
            optional_text(payload, "otp"),
        )
        count_account(request, credentials.email)
        # The mode decides where the tokens go: into the body, or into cookies.
        mode = mode_of(payload) or Mode.JSON
        issued = login(self._store, self._issuer, credentials, mode=mode, client=request.client)
        self._cookies.set_session(request, response, issued)
        send(response, session_body(issued))


@dataclass(frozen=True, slots=True)
class RefreshTokenSource:
    """Finds the token of a session: in the body, else in a cookie."""

    cookies: Cookies
    origins: Origins

    def token(self, request: Request, payload: Mapping[str, object]) -> str:
        """Return the token of the request.

        Raises `Refused`: INVALID_PAYLOAD without a token, FORBIDDEN for a cookie that comes with
        another site's request.
        """
        token = optional_text(payload, "refresh_token")
        if token is not None:
            return token
        cookie = refresh_token_of(request, mode_of(payload))
        # Raises the refusal of a body without the key.
        if cookie is None:
            return required_text(payload, "refresh_token")
        # Browsers send cookies along with requests of any site.
        self.origins.require(request)
        return cookie


class RefreshResource:
    def __init__(
        self,
        refresh: Callable[[Request, str], IssuedTokens],
        token_source: RefreshTokenSource,
    ) -> None:
        self._refresh = refresh
        self._token_source = token_source

    def on_post(self, request: Request, response: falcon.Response) -> None:
        token = self._token_source.token(request, _optional_object(request))
        issued = self._refresh(request, token)
        self._token_source.cookies.set_session(request, response, issued)
        send(response, session_body(issued))


class LogoutResource:
    def __init__(self, store: Store, token_source: RefreshTokenSource) -> None:
        self._store = store
        self._token_source = token_source

    def on_post(self, request: Request, response: falcon.Response) -> None:
        """End one session, or with `all=true` every session of its user, and clear the cookies.

        Where a provider has a session of its own, the answer says where a browser ends it.
        """
        token = self._token_source.token(request, _optional_object(request))
        # Cleared before the session ends: a token that is no longer valid is refused, but its
        # cookies must be cleared as well.
        self._token_source.cookies.clear(request, response)
        everywhere = _boolean(request.get_param("all"))
        logout_url = sessions.logout(
            self._store, token=token, client=request.client, everywhere=everywhere
        )
        if logout_url is None:
            response.status = falcon.HTTP_204
        else:
            send(response, {"logout_url": logout_url})


class MeResource:
    """The current user."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response) -> None:
        read_request = ReadRequest(USERS, request.query_string)
        answer = read_me(self._store, request.identity, read_request)
        send_with_etag(self._store, request, response, answer)

    def on_query(self, request: Request, response: falcon.Response) -> None:
        read_request = ReadRequest(USERS, params=params_of(request))
        send_without_etag(
            self._store, response, read_me(self._store, request.identity, read_request)
        )

    def on_patch(self, request: Request, response: falcon.Response) -> None:
        """Change the caller's own user, as its permissions or app access allow."""
        payload = read_json(request)
        written = update_me(
            self._store,
            request.identity,
            write_target(request, USERS),
            payload=payload,
        )
        send_written(response, written)


class LastPageResource:
    """The page of an app that the current user has opened last."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_patch(self, request: Request, response: falcon.Response) -> None:
        page = required_text(read_json_object(request), "last_page")
        set_last_page(
            self._store,
            request.identity,
            page,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


def mode_of(payload: Mapping[str, object]) -> Mode | None:
    mode = payload.get("mode")
    if mode is None:
        return None
    if mode == "ldap":
        raise invalid_provider("There is no login by directory here.")
    try:
        return Mode(str(mode))
    except ValueError:
        # Without the value: it may be a secret that landed under the wrong name.
        raise invalid_payload(f'"mode" is one of {", ".join(Mode)}', field="mode") from None


def session_body(issued: IssuedTokens) -> Mapping[str, object]:
    """Return the part of a session that belongs in the body."""
    body: dict[str, object] = {"expires": issued.expires}
    # Cookies are HttpOnly, so that no script can read a token. So the body must not have it either.
    if issued.access_token is not None:
        body["access_token"] = issued.access_token
    if issued.mode is Mode.JSON:
        body["refresh_token"] = issued.token
    return body


def _optional_object(request: Request) -> Mapping[str, object]:
    payload = read_json(request)
    if payload is not None and not isinstance(payload, dict):
        raise no_object()
    return payload or {}


def _boolean(text: str | None) -> bool:
    """Read `all` of a query string; raises `Refused` INVALID_QUERY for any other text."""
    if text not in (None, "", "true", "false", "1", "0"):
        raise invalid_query('"all" is true or false', parameter="all")
    return text in ("", "true", "1")
