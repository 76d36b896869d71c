"""Work that every request passes: an id, an identity, common headers, a line in the log."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import falcon
from cachebox import LRUCache

from cms.access.endpoints import require_not_system
from cms.auth.tokens import claims_of, session_of
from cms.errors import Refused, invalid_token
from cms.hashing.passwords import digest
from cms.http.administrators import is_administrator
from cms.http.answers.errors import with_search
from cms.http.requests.cookies import session_cookie
from cms.http.requests.host_identity import Identify, IdentifyFailed, host_identity
from cms.http.requests.origins import SAFE_METHODS, Origins
from cms.http.requests.request import RequestState, client_of, method_label
from cms.logs import log_request, logs_requests
from cms.schema.system import is_system
from cms.store.identity import ANONYMOUS, Identity
from cms.store.recent_writers import RecentWriters
from cms.store.store import Store
from cms.tracing import process as tracing

MAX_CACHED_TOKENS = 5_000
MAX_CACHED_TOKEN_LENGTH = 200
"""The service's own tokens are shorter."""

_ITEM_PATHS = ("/items/", "/utils/")
"""Beginnings of the paths in which `{collection}` must not be a system collection."""

DEFAULT_CACHE_CONTROL = "no-cache"
"""The Cache-Control of an answer that names none: a cache may keep it, and asks each time."""

NO_ROUTE = "none"
"""The route, in metrics, of requests that reach none: unknown paths, and preflights of CORS."""

# As proxies and tracing tools make them: UUIDs, hexadecimal digits, words with dots and colons.
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def request_id_of(environ: Mapping[str, Any]) -> str | None:
    """Return the id that a client has given its request, if it is one."""
    client_id: str | None = environ.get("HTTP_X_REQUEST_ID")
    # Any other text could forge a line of the log, or a header.
    if client_id and _REQUEST_ID.fullmatch(client_id):
        return client_id
    return None


def vary_header(named: str | None = None, *, by_cookie: bool) -> str:
    """Return the Vary of an answer that names these headers, or none."""
    vary = named or "Origin"
    if by_cookie and "Cookie" not in vary:
        vary += ", Cookie"
    return vary


def log_answer(state: RequestState, path: str, status: int, *, seconds: float) -> None:
    """Write the line of an answered request in the log."""
    # What exceeds a limit has a line of its own, once for each window.
    if logs_requests() and not state.is_over_limit:
        log_request(
            {
                "request": state.id,
                "method": state.method,
                "path": path,
                "status": status,
                "ms": round(seconds * 1000, 2),
            }
        )


class _VerifiedToken(NamedTuple):
    """The caller that an access token names, and the time of its expiry in seconds."""

    identity: Identity
    expires: float


class Authentication:
    """Finds out who calls from the headers alone; the store checks whether that user may act."""

    def __init__(
        self,
        secret: str,
        *,
        origins: Origins,
        trusted_proxies: int = 0,
        identify: Identify | None = None,
    ) -> None:
        self._secret = secret
        self._identify = identify
        # A key for one purpose, so that digests that are stored say nothing of the secret itself.
        self._seal = hmac.digest(secret.encode(), b"idempotency", "sha256")
        self._origins = origins
        self._trusted_proxies = trusted_proxies
        self._verified_tokens: LRUCache[str, _VerifiedToken] = LRUCache(MAX_CACHED_TOKENS)
        self._digests: LRUCache[str, str] = LRUCache(MAX_CACHED_TOKENS)

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        request.context.seal = self._seal
        # Called when a resource needs it: see `RequestState.identity`.
        request.context.identify_with(
            lambda: self._identity(request),
            lambda: client_of(request, trusted_proxies=self._trusted_proxies),
        )

    def _identity(self, request: falcon.Request) -> Identity:
        """Return the caller of the Authorization header, else the one that the browser stands for.

        Raises `Refused`.
        """
        kind, _, token = (request.auth or "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token:
            # The header comes first: a browser sends its cookie along without being asked.
            return self._from_browser(request)
        # Access tokens are JWTs of three parts; static tokens have no dots.
        if token.count(".") == 2:
            return self._from_access_token(token)
        return Identity(token=self._digest(token))

    def _from_browser(self, request: falcon.Request) -> Identity:
        """Return the user of the surrounding application, else the caller of the session cookie."""
        if self._identify is not None:
            identity = host_identity(self._identify, request.env)
            if identity is not None:
                # Most likely by a cookie as well, or by another thing that browsers send unasked.
                self._require_own_page(request)
                return identity
        cookie = session_cookie(request)
        if not cookie:
            return ANONYMOUS
        return self._from_cookie(request, cookie)

    def _require_own_page(self, request: falcon.Request) -> None:
        """Raise `Refused` FORBIDDEN for another site's request that might change something.

        Browsers send cookies with such requests as well.
        """
        if request.context.method not in SAFE_METHODS:
            self._origins.require(request)

    def _from_cookie(self, request: falcon.Request, cookie: str) -> Identity:
        self._require_own_page(request)
        session = session_of(cookie)
        if session is None:
            raise invalid_token()
        return Identity(session=session, cookie=self._digest(cookie))

    def _digest(self, token: str) -> str:
        """Return what is stored of a token that comes with each request."""
        # Texts of any length would fill the memory of the cache.
        if len(token) > MAX_CACHED_TOKEN_LENGTH:
            return digest(token)
        return self._digests.setdefault_with(token, lambda: digest(token))

    def _from_access_token(self, token: str) -> Identity:
        """Return the caller of an access token.

        The signature is checked once, because that takes longer than the database does; the expiry
        is checked every time.
        """
        # Only verified tokens get into the cache: an exception of `_verify` leaves it as it is.
        verified = self._verified_tokens.setdefault_with(token, lambda: self._verify(token))
        if time.time() < verified.expires:
            return verified.identity
        # Raises the refusal of an expired token.
        return self._verify(token).identity

    def _verify(self, token: str) -> _VerifiedToken:
        claims = claims_of(token, secret=self._secret)
        # The token of a share names no user: its session says which share it is.
        identity = Identity(user=claims.get("id"), session=claims["session"])
        return _VerifiedToken(identity, float(claims["exp"]))


class SystemCollectionGuard:
    """Refuses system collections in paths that are for other collections."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def process_resource(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: object,
        params: Mapping[str, str],
    ) -> None:
        name = params.get("collection", "")
        template = request.uri_template or ""
        # Falcon calls this between routing and the resource: the template tells which route it is,
        # as the same name may stand in others.
        if is_system(name) and template.startswith(_ITEM_PATHS) and request.method != "OPTIONS":
            self._store.run_unversioned_read(
                request.context.identity,
                lambda context: require_not_system(name, context.actor.policy),
            )


class NoteOfWriters:
    """Notes who may have written, before the answer is sent: the next request may be a read."""

    def __init__(self, writers: RecentWriters) -> None:
        self._writers = writers

    def process_response(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: object,
        req_succeeded: bool,  # noqa: FBT001  # Falcon calls it so
    ) -> None:
        # Logins by other services end with a GET.
        is_login = request.path.startswith("/auth/")
        if request.context.method in SAFE_METHODS and not is_login:
            return
        try:
            identity = request.context.identity
        except (Refused, IdentifyFailed):
            # A login or refresh takes no notice of credentials that are no longer good, nor of an
            # application around the service that cannot tell who is signed in.
            identity = ANONYMOUS.with_client(request.context.client)
        self._writers.note(identity)


class RequestTracing:
    """Gives a request its id, its answer the common headers, and the log a line; counts it."""

    def __init__(self, store: Store, *, varies_by_cookie: bool = False) -> None:
        self._store = store
        self._varies_by_cookie = varies_by_cookie
        self._metrics = store.database.metrics
        self._meter = store.database.meter

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        client_id = request_id_of(request.env)
        if client_id:
            request.context.id = client_id
        if tracing.active is not None:
            request.context.span = tracing.active.begin_request(request.env)
        # Measured only if the header asks for it, so that other requests cost nothing more.
        if request.env.get("HTTP_X_SERVER_TIMING") == "1":
            request.context.statement_seconds = self._meter.seconds

    def process_response(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: Any,
        succeeded: bool,  # noqa: FBT001
    ) -> None:
        response.set_header("X-Request-Id", request.context.id)
        # An error must not be cached by the header of the answer that it replaces.
        if response.get_header("Cache-Control") is None or not succeeded:
            is_private = request.path.startswith("/auth")
            response.set_header(
                "Cache-Control", "no-store" if is_private else DEFAULT_CACHE_CONTROL
            )
        self._set_vary(response)
        if request.method == "OPTIONS" and (allowed := response.get_header("Allow")):
            response.set_header("Allow", with_search(allowed))
        seconds = time.perf_counter() - request.context.began
        if request.context.statement_seconds is not None:
            self._set_server_timing(request, response, seconds)
        status = response.status_code
        route = request.uri_template or NO_ROUTE
        method = method_label(request, status)
        self._metrics.count_request(method, route, str(status), seconds)
        if request.context.span is not None:
            request.context.span.end(method=method, route=route, status=status)
        state = cast(RequestState, request.context)
        log_answer(state, request.path, status, seconds=seconds)

    def _set_vary(self, response: falcon.Response) -> None:
        # Whoever signs in after another one, in the same browser, must not see what the browser has
        # kept. What is public is the same for all.
        by_cookie = self._varies_by_cookie and not _is_public(response)
        response.set_header("Vary", vary_header(response.get_header("Vary"), by_cookie=by_cookie))

    def _set_server_timing(
        self, request: falcon.Request, response: falcon.Response, seconds: float
    ) -> None:
        """Tell an administrator the time of the statements and of the whole request."""
        began = request.context.statement_seconds
        # Before the next statement, which asks who calls.
        statement_seconds = self._meter.seconds - began
        # A database that does not answer need not be asked again.
        if response.status_code != 503 and is_administrator(self._store, request):
            durations = f"db;dur={statement_seconds * 1000:.2f}, total;dur={seconds * 1000:.2f}"
            response.set_header("Server-Timing", durations)


def _is_public(response: falcon.Response) -> bool:
    return (response.get_header("Cache-Control") or "").startswith("public")
