"""Refuses the requests of a client that sends too many (docs/rate-limits.md)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping

import falcon

from cms.errors import STATUS, Problem, Refused
from cms.http.requests.paths import PING_PATH
from cms.http.requests.request import Request
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

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter

    def process_request(self, request: Request, response: falcon.Response) -> None:
        """Count a request of an address; raises `Refused` REQUESTS_EXCEEDED."""
        request.limiter = self._limiter
        request.usage = self._limiter.count_request(request.address)
        if not request.usage.passed and request.path != _NEVER_REFUSED:
            raise _refused(request, request.usage, "Requests")

    def process_resource(
        self,
        request: Request,
        response: falcon.Response,
        resource: object,
        params: Mapping[str, str],
    ) -> None:
        """Count an attempt to log in; raises `Refused` REQUESTS_EXCEEDED.

        The account is known only when the resource has read the body: see `count_account`.
        """
        if request.uri_template in LOGIN_ROUTES and request.method != "OPTIONS":
            _use(request, self._limiter.count_login(request.address))

    def process_response(
        self,
        request: Request,
        response: falcon.Response,
        resource: object,
        succeeded: bool,  # noqa: FBT001
    ) -> None:
        """Tell in every answer how many requests are left."""
        if request.usage is None:
            return
        response.set_headers(usage_headers(request.usage))
        if not request.usage.passed and response.status_code == STATUS["REQUESTS_EXCEEDED"]:
            response.set_header("Retry-After", str(request.usage.retry_after))


def count_account(request: Request, account: str) -> None:
    """Count an attempt to log in to an account; raises `Refused` REQUESTS_EXCEEDED.

    A resource calls this as soon as it has read which account is meant, and before it finds out
    whether there is one.
    """
    if request.limiter is not None:
        _use(request, request.limiter.count_account(account))


def _use(request: Request, usage: Usage) -> None:
    """Take a further limit into account."""
    request.usage = usage if request.usage is None else tighter(usage, request.usage)
    if not usage.passed:
        raise _refused(request, usage, "Logins")


def _refused(request: Request, usage: Usage, subject: str) -> Refused:
    # One line for a window: a flood of requests must not become one of the log.
    if usage.is_first_refusal:
        _log_refusal(request, usage, subject)
    message = f"There were too many requests. Try again in {usage.retry_after} seconds."
    extensions = {"limit": usage.limit, "reset": _reset_of(usage)}
    return Refused(Problem("REQUESTS_EXCEEDED", message, extensions))


def _log_refusal(request: Request, usage: Usage, subject: str) -> None:
    hint = ""
    if not request.trusted_proxies and request.get_header("X-Forwarded-For"):
        hint = " If that is a proxy of your own, set IP_TRUST_PROXY."
    log.warning(
        "%s from %s are refused for %d s, after %d.%s",
        subject,
        request.address,
        usage.retry_after,
        usage.limit,
        hint,
    )


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
