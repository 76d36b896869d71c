"""What happens to every request: an id, an identity, the common headers, a line in the log."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Mapping
from typing import Any

import falcon
from cachebox import LRUCache

from cms.access.endpoints import require_not_system
from cms.auth.tokens import claims_of, invalid_token, session_of
from cms.http.cookies import session_cookie
from cms.http.errors import with_search
from cms.http.logs import log_request, logs_requests
from cms.http.origins import SAFE_METHODS, Origins
from cms.http.request import caller_of
from cms.passwords import digest
from cms.schema.build import is_system
from cms.store.identity import ANONYMOUS, Identity
from cms.store.store import Store

MAX_CACHED_TOKENS = 5_000

_ITEM_PATHS = ("/items/", "/utils/")
"""How templates of paths begin whose `{collection}` is one of people's own."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


class Authentication:
    """Tell who calls, from the headers alone; the store tells whether that user may still act."""

    def __init__(self, secret: str, *, origins: Origins, hops: int = 0) -> None:
        self._secret = secret
        self._seal = hmac.digest(secret.encode(), b"idempotency", "sha256")
        self._origins = origins
        self._hops = hops
        self._verified_tokens: LRUCache[str, tuple[Identity, float]] = LRUCache(MAX_CACHED_TOKENS)

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        request.context.seal = self._seal
        request.context.identify_with(
            lambda: self._identity(request), lambda: caller_of(request, hops=self._hops)
        )

    def _identity(self, request: falcon.Request) -> Identity:
        """Return whom the Authorization header or else the session cookie names; raises `Refused`."""
        kind, _, token = (request.auth or "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token:
            cookie = session_cookie(request)
            return self._from_cookie(request, cookie) if cookie else ANONYMOUS
        if token.count(".") == 2:
            return self._from_access_token(token)
        return Identity(token=digest(token))

    def _from_cookie(self, request: falcon.Request, cookie: str) -> Identity:
        """A cookie comes with requests of other sites as well, which must not change anything."""
        if request.context.method not in SAFE_METHODS:
            self._origins.require(request)
        session = session_of(cookie)
        if session is None:
            raise invalid_token()
        return Identity(session=session, cookie=digest(cookie))

    def _from_access_token(self, token: str) -> Identity:
        """Check the signature of a token once (it takes longer than the database does), its end every time."""
        identity, end = self._verified_tokens.setdefault_with(token, lambda: self._verify(token))
        return identity if time.time() < end else self._verify(token)[0]

    def _verify(self, token: str) -> tuple[Identity, float]:
        claims = claims_of(token, secret=self._secret)
        return Identity(user=claims["id"], session=claims["session"]), float(claims["exp"])


class SystemCollectionGuard:
    """Keep system collections out of the paths that name any collection of items."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def process_resource(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: object,
        params: Mapping[str, str],
    ) -> None:
        name, template = params.get("collection", ""), request.uri_template or ""
        if is_system(name) and template.startswith(_ITEM_PATHS) and request.method != "OPTIONS":
            self._store.run_unversioned_read(
                request.context.identity,
                lambda context: require_not_system(name, context.actor.policy),
            )


class RequestTracing:
    """Give a request the id that its client wants, its answer the common headers, and the log a line."""

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        said = request.get_header("X-Request-Id")
        if said and _REQUEST_ID.fullmatch(said):
            request.context.id = said

    def process_response(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: Any,
        succeeded: bool,  # noqa: FBT001
    ) -> None:
        response.set_header("X-Request-Id", request.context.id)
        if response.get_header("Cache-Control") is None or not succeeded:
            private = request.path.startswith("/auth")
            response.set_header("Cache-Control", "no-store" if private else "no-cache")
        if response.get_header("Vary") is None:
            response.set_header("Vary", "Origin")
        if request.method == "OPTIONS" and (allowed := response.get_header("Allow")):
            response.set_header("Allow", with_search(allowed))
        if logs_requests():
            log_request(
                {
                    "request": request.context.id,
                    "method": request.context.method,
                    "path": request.path,
                    "status": response.status_code,
                    "ms": round((time.perf_counter() - request.context.began) * 1000, 2),
                }
            )
