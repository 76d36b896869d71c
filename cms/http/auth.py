"""/auth and /users/me: who is there (specification, sections 4.3 and 4.11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import falcon

from cms.auth import sessions
from cms.auth.login import Credentials, login
from cms.auth.sessions import IssuedTokens, Issuer, Mode
from cms.errors import Problem, Refused, invalid_payload, invalid_query
from cms.http.cookies import Cookies, refresh_token_of
from cms.http.etags import send_with_etag
from cms.http.media import (
    check_texts,
    optional_text,
    read_json,
    read_json_object,
    required_text,
    send,
    send_written,
)
from cms.http.origins import Origins
from cms.items.read.reads import read_me
from cms.items.write.writes import update_me
from cms.store.store import Store


class ProvidersResource:
    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """List the ways to log in beside the password."""
        response.media = {"data": [], "disableDefault": False}


class LoginResource:
    def __init__(self, store: Store, issuer: Issuer, cookies: Cookies, max_bytes: int) -> None:
        self._store = store
        self._issuer = issuer
        self._cookies = cookies
        self._max_bytes = max_bytes

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = read_json_object(request, max_bytes=self._max_bytes)
        check_texts(payload, "email", "password", optional=("otp",))
        said = Credentials(
            required_text(payload, "email"),
            required_text(payload, "password"),
            optional_text(payload, "otp"),
        )
        mode = _mode(payload) or Mode.JSON
        found = login(self._store, self._issuer, said, mode=mode, client=request.context.client)
        self._cookies.set_session(request, response, found)
        send(response, _session_body(found))


@dataclass(frozen=True, slots=True)
class RefreshTokenSource:
    """Where a client keeps the token of its session: it comes in the body, else in a cookie."""

    cookies: Cookies
    origins: Origins

    def token(self, request: falcon.Request, payload: Mapping[str, object]) -> str:
        """Return the token; raises `Refused` INVALID_PAYLOAD without one, FORBIDDEN for another site's request."""
        found = optional_text(payload, "refresh_token")
        if found is None and (found := refresh_token_of(request, _mode(payload))) is not None:
            self.origins.require(request)
        return found if found is not None else required_text(payload, "refresh_token")


class RefreshResource:
    def __init__(
        self, store: Store, issuer: Issuer, token_source: RefreshTokenSource, max_bytes: int
    ) -> None:
        self._store = store
        self._issuer = issuer
        self._token_source = token_source
        self._max_bytes = max_bytes

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        token = self._token_source.token(request, _optional_fields(request, self._max_bytes))
        found = sessions.refresh(
            self._store, self._issuer, token=token, client=request.context.client
        )
        self._token_source.cookies.set_session(request, response, found)
        send(response, _session_body(found))


class LogoutResource:
    def __init__(self, store: Store, token_source: RefreshTokenSource, max_bytes: int) -> None:
        self._store = store
        self._token_source = token_source
        self._max_bytes = max_bytes

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """End a session, or with `all=true` all of its user's; cookies go in any case."""
        token = self._token_source.token(request, _optional_fields(request, self._max_bytes))
        self._token_source.cookies.clear(request, response)
        everywhere = _boolean(request.get_param("all"))
        sessions.logout(
            self._store, token=token, client=request.context.client, everywhere=everywhere
        )
        response.status = falcon.HTTP_204


class MeResource:
    """The current user."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        send_with_etag(
            request, response, read_me(self._store, request.context.identity, request.query_string)
        )

    def on_patch(self, request: falcon.Request, response: falcon.Response) -> None:
        """Change the own account, as far as the caller may change users, and with app access the own profile."""
        payload, identity = read_json(request, max_bytes=self._max_bytes), request.context.identity
        if_match = request.get_header("If-Match")
        found = update_me(
            self._store, identity, request.query_string, payload=payload, if_match=if_match
        )
        send_written(response, found)


def _mode(payload: Mapping[str, object]) -> Mode | None:
    said = payload.get("mode")
    if said == "ldap":
        raise Refused(Problem("INVALID_PROVIDER", "There is no login by directory here."))
    try:
        return None if said is None else Mode(str(said))
    except ValueError:
        raise invalid_payload(
            f'"mode" is one of {", ".join(Mode)}', field="mode"
        ) from None  # it may be a secret


def _session_body(issued: IssuedTokens) -> Mapping[str, object]:
    """Return what a client may see of its session: what lies in a cookie, no script gets hold of."""
    found: dict[str, object] = {"expires": issued.expires}
    if issued.access_token is not None:
        found["access_token"] = issued.access_token
    if issued.mode is Mode.JSON:
        found["refresh_token"] = issued.token
    return found


def _optional_fields(request: falcon.Request, max_bytes: int) -> Mapping[str, object]:
    found = read_json(request, max_bytes=max_bytes)
    if found is not None and not isinstance(found, dict):
        raise invalid_payload("The body must be an object")
    return found or {}


def _boolean(said: str | None) -> bool:
    """Read `all` of a query string; raises `Refused` INVALID_QUERY for what is neither true nor false."""
    if said not in (None, "", "true", "false", "1", "0"):
        raise invalid_query('"all" is true or false', parameter="all")
    return said in ("", "true", "1")
