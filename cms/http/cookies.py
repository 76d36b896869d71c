"""The cookies of logins (decisions, section 10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

import falcon

from cms.auth.sessions import IssuedTokens, Mode
from cms.config import Config

SESSION_COOKIE = "cms_session_token"
REFRESH_COOKIE = "cms_refresh_token"

_PAST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cookies:
    """How cookies are written; lives are seconds, `path` is the one of PUBLIC_URL, where it has one."""

    secure: bool
    same_site: str
    path: str
    refresh_life: int
    session_life: int

    @classmethod
    def from_config(cls, config: Config) -> Cookies:
        """Return the cookies of the settings."""
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
        """Set the cookie of a session, if its mode has one."""
        if issued.mode is Mode.SESSION:
            self._set(request, response, SESSION_COOKIE, issued.token, life=self.session_life)
        elif issued.mode is Mode.COOKIE:
            self._set(request, response, REFRESH_COOKIE, issued.token, life=self.refresh_life)

    def clear(self, request: falcon.Request, response: falcon.Response) -> None:
        """Have the browser forget both."""
        for name in (SESSION_COOKIE, REFRESH_COOKIE):
            self._set(request, response, name, "", life=0)

    def _set(
        self,
        request: falcon.Request,
        response: falcon.Response,
        name: str,
        value: str,
        *,
        life: int,
    ) -> None:
        """The refresh token goes nowhere but to /auth, wherever the service is mounted."""
        mounted = self.path or request.root_path
        response.set_cookie(
            name,
            value,
            max_age=life or None,
            expires=None if life else _PAST,
            path=f"{mounted}/auth" if name == REFRESH_COOKIE else mounted or "/",
            secure=self.secure,
            http_only=True,
            same_site=self.same_site,
        )


def session_cookie(request: falcon.Request) -> str | None:
    """Return what the session cookie holds."""
    return _value(request, SESSION_COOKIE) if "HTTP_COOKIE" in request.env else None


def refresh_token_of(request: falcon.Request, mode: Mode | None) -> str | None:
    """Return the token that a cookie holds: that of the mode, or of either where none is named."""
    if mode is None:
        names: tuple[str, ...] = (REFRESH_COOKIE, SESSION_COOKIE)
    elif mode is Mode.SESSION:
        names = (SESSION_COOKIE,)
    elif mode is Mode.COOKIE:
        names = (REFRESH_COOKIE,)
    else:
        names = ()
    for name in names:
        if token := _value(request, name):
            return token
    return None


def _value(request: falcon.Request, name: str) -> str | None:
    """A browser that holds two cookies of a name sends the one with the longer path first."""
    found = request.get_cookie_values(name)
    return found[0] if found else None
