"""Refuses the requests of a client that sends too many (docs/rate-limits.md)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping

import falcon

from cms.errors import Problem, Refused
from cms.http.requests.paths import PING_PATH
from cms.http.requests.request import client_address
from cms.rate_limits.limiter import RateLimiter
from cms.rate_limits.windows import Usage, tighter

log = logging.getLogger("cms")

LOGIN_ROUTES = frozenset(
    {
        "/auth/login",
        "/auth/login/{provider}",
        "/auth/login/{provider}/acs",
        "/auth/login/{provider}/callback",
        "/auth/password/request",
        "/auth/password/reset",
        "/shares/auth",
        "/users/invite/accept",
        "/users/me/tfa/disable",
        "/users/me/tfa/enable",
        "/users/me/tfa/generate",
        "/users/me/tfa/recovery-codes",
        "/users/register",
        "/users/register/verify-email",
    }
)
"""Routes that take a password, a code or a token of a mail, or send a mail to anybody."""

_NEVER_REFUSED = PING_PATH
"""Load balancers ask it: a machine with many clients behind one proxy must not seem dead."""


class RateLimit:
    """Counts each request before any work for it; the answer says how many requests are left."""

    def __init__(self, limiter: RateLimiter, *, trusted_proxies: int) -> None:
        self._limiter = limiter
        self._trusted_proxies = trusted_proxies

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        """Count a request of an address; raises `Refused` REQUESTS_EXCEEDED."""
        usage = self._limiter.count_request(self._address(request))
        # Set now, so that every answer to the request has them.
        _set_headers(response, usage)
        request.context.usage = usage
        if not usage.passed and request.path != _NEVER_REFUSED:
            raise self._refused(request, response, usage, "Requests")

    def process_resource(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: object,
        params: Mapping[str, str],
    ) -> None:
        """Count an attempt to log in; raises `Refused` REQUESTS_EXCEEDED.

        The account is known only when the resource has read the body: see
        `RequestState.count_account`.
        """
        if request.uri_template not in LOGIN_ROUTES or request.method == "OPTIONS":
            return
        request.context.count_accounts_with(
            lambda account: self._use(request, response, self._limiter.count_account(account))
        )
        self._use(request, response, self._limiter.count_login(self._address(request)))

    def _use(self, request: falcon.Request, response: falcon.Response, usage: Usage) -> None:
        """Take a further limit into account."""
        request.context.usage = tighter(usage, request.context.usage)
        _set_headers(response, request.context.usage)
        if not usage.passed:
            raise self._refused(request, response, usage, "Logins")

    def _refused(
        self, request: falcon.Request, response: falcon.Response, usage: Usage, subject: str
    ) -> Refused:
        response.set_header("Retry-After", str(usage.retry_after))
        # One line for a window: a flood of requests must not become one of the log.
        if usage.is_first_refusal:
            self._log_refusal(request, usage, subject)
        message = f"There were too many requests. Try again in {usage.retry_after} seconds."
        extensions = {"limit": usage.limit, "reset": _reset_of(usage)}
        return Refused(Problem("REQUESTS_EXCEEDED", message, extensions))

    def _log_refusal(self, request: falcon.Request, usage: Usage, subject: str) -> None:
        hint = ""
        if not self._trusted_proxies and request.get_header("X-Forwarded-For"):
            hint = " If that is a proxy of your own, set IP_TRUST_PROXY."
        log.warning(
            "%s from %s are refused for %d s, after %d.%s",
            subject,
            self._address(request),
            usage.retry_after,
            usage.limit,
            hint,
        )

    def _address(self, request: falcon.Request) -> str:
        return client_address(request, trusted_proxies=self._trusted_proxies)


def _set_headers(response: falcon.Response, usage: Usage) -> None:
    response.set_headers(usage_headers(usage))


def usage_headers(usage: Usage) -> list[tuple[str, str]]:
    """Return the headers that say what is left."""
    return [
        ("x-ratelimit-limit", str(usage.limit)),
        ("x-ratelimit-remaining", str(usage.remaining)),
        ("x-ratelimit-reset", str(_reset_of(usage))),
    ]


def _reset_of(usage: Usage) -> int:
    """Return when the window ends, in seconds since the epoch."""
    return math.ceil(time.time() + usage.seconds_left)
