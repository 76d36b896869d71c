"""The cookies of logins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import falcon

from cms.auth.sessions import IssuedTokens, Mode
from cms.config import Config

SESSION_COOKIE = "cms_session_token"
REFRESH_COOKIE = "cms_refresh_token"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cookies:
    """How the cookies of logins are written.

    Lifetimes are in seconds; `path` is the path of PUBLIC_URL, empty where it has none.
    """

    secure: bool
    same_site: str
    path: str
    refresh_life: int
    session_life: int

    @classmethod
    def from_config(cls, config: Config) -> Cookies:
        """Return the cookies that the settings ask for."""
        return cls(
            config.session_cookie_secure,
            config.session_cookie_same_site.capitalize(),
            urlsplit(config.public_url).path,
            int(config.refresh_token_ttl.total_seconds()),
            int(config.session_cookie_ttl.total_seconds()),
        )

    def set_session(
        self, request: falcon.Request, response: falcon.Response, issued: IssuedTokens
    ) -> None:
        """Set the cookie of a session, where its mode keeps the token in one."""
        # In the mode session the one cookie is both: it identifies the caller and renews itself.
        if issued.mode is Mode.SESSION:
            self._set(request, response, SESSION_COOKIE, issued.token, max_age=self.session_life)
        elif issued.mode is Mode.COOKIE:
            self._set(request, response, REFRESH_COOKIE, issued.token, max_age=self.refresh_life)

    def set_for_login(
        self,
        request: falcon.Request,
        response: falcon.Response,
        name: str,
        value: str,
        *,
        provider: str,
        max_age: int,
    ) -> None:
        """Set a cookie of a login that is under way at a provider; lifetimes are in seconds."""
        path = f"{self.path or mount_path(request)}/auth/login/{provider}"
        # The browser comes back from another site, by a link: strict cookies would stay away.
        self._write(response, name, value, max_age=max_age, path=path, same_site="Lax")

    def forget_for_login(
        self, request: falcon.Request, response: falcon.Response, name: str, *, provider: str
    ) -> None:
        """Make the browser forget a cookie of a login."""
        self.set_for_login(request, response, name, "", provider=provider, max_age=0)

    def clear(self, request: falcon.Request, response: falcon.Response) -> None:
        """Make the browser forget both cookies."""
        for name in (SESSION_COOKIE, REFRESH_COOKIE):
            self._set(request, response, name, "", max_age=0)

    def _set(
        self,
        request: falcon.Request,
        response: falcon.Response,
        name: str,
        value: str,
        *,
        max_age: int,
    ) -> None:
        path = self._path_of(request, name)
        self._write(response, name, value, max_age=max_age, path=path, same_site=self.same_site)

    def _write(
        self,
        response: falcon.Response,
        name: str,
        value: str,
        *,
        max_age: int,
        path: str,
        same_site: str,
    ) -> None:
        """Write one cookie; a `max_age` of 0 deletes it."""
        response.set_cookie(
            name,
            value,
            max_age=max_age or None,
            # Only a date in the past deletes a cookie in every browser.
            expires=None if max_age else _EPOCH,
            path=path,
            secure=self.secure,
            # No script of a page can read the token, and so none can steal it.
            http_only=True,
            same_site=same_site,
        )

    def _path_of(self, request: falcon.Request, name: str) -> str:
        # PUBLIC_URL comes first: behind a proxy the server does not see where it is mounted.
        mounted = self.path or mount_path(request)
        if name == REFRESH_COOKIE:
            # A token that renews sessions is sent with as few requests as possible.
            return f"{mounted}/auth"
        return mounted or "/"


def session_cookie(request: falcon.Request) -> str | None:
    """Return the value of the session cookie."""
    # Most requests have no cookies.
    if "HTTP_COOKIE" not in request.env:
        return None
    return cookie_value(request, SESSION_COOKIE)


def refresh_token_of(request: falcon.Request, mode: Mode | None) -> str | None:
    """Return the token from the cookie of a mode, or from either cookie without a mode."""
    if mode is None:
        # The refresh cookie first: it reaches only /auth, so a request with it means to renew it.
        names: tuple[str, ...] = (REFRESH_COOKIE, SESSION_COOKIE)
    elif mode is Mode.SESSION:
        names = (SESSION_COOKIE,)
    elif mode is Mode.COOKIE:
        names = (REFRESH_COOKIE,)
    else:
        names = ()
    for name in names:
        if token := cookie_value(request, name):
            return token
    return None


def cookie_value(request: falcon.Request, name: str) -> str | None:
    """Return the value of a cookie as it was sent: those of the service hold no escapes.

    Falcon reads escapes, which takes Python quadratic time (CVE-2024-7592).
    """
    # A browser with two cookies of one name sends the one with the longer path first.
    header: str = request.env.get("HTTP_COOKIE", "")
    for cookie in header.split(";"):
        sent_name, _, value = cookie.partition("=")
        if sent_name.strip() == name:
            return value.strip().strip('"')
    return None


def mount_path(request: falcon.Request) -> str:
    """Return the prefix under which the service is mounted, encoded as in addresses.

    A server or middleware may take it from the target of a request, and a semicolon would end the
    path of a cookie.
    """
    return quote(request.root_path, safe="/~!$&'()*+,:=@")
