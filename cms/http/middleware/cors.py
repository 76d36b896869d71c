"""Cross-origin requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import falcon

from cms.config import Config
from cms.http.requests.request import Request


def cors_middleware(config: Config) -> Sequence[object]:
    """Return the CORS middleware, where the settings turn it on."""
    if config.cors_enabled and config.cors_origin:
        return [Cors(config)]
    return []


class Cors:
    """Tells browsers which sites may read answers, and answers their preflights.

    With `*` other sites may read answers too, but never answers to a request with cookies.
    """

    def __init__(self, config: Config) -> None:
        self._origins = frozenset(config.cors_origin)
        self._credentials = config.cors_credentials
        self._exposed = ", ".join(config.cors_exposed_headers)
        self._preflight: Mapping[str, str] = {
            "Access-Control-Allow-Methods": ", ".join(config.cors_methods),
            "Access-Control-Allow-Headers": ", ".join(config.cors_allowed_headers),
            "Access-Control-Max-Age": str(config.cors_max_age),
        }

    def process_request(self, request: Request, response: falcon.Response) -> None:
        """Answer a preflight at once: it has no credentials and concerns no resource."""
        # Without these headers OPTIONS is a request like any other, which Falcon answers.
        requested_method = request.get_header("Access-Control-Request-Method")
        if request.method == "OPTIONS" and requested_method and request.get_header("Origin"):
            response.status = falcon.HTTP_204
            response.set_headers(self._preflight)
            # Falcon then calls no resource: a preflight must succeed without credentials.
            response.complete = True

    def process_response(
        self,
        request: Request,
        response: falcon.Response,
        resource: Any,
        succeeded: bool,  # noqa: FBT001
    ) -> None:
        origin = request.get_header("Origin")
        # With credentials browsers take the exact origin only, and no `*`. `Vary: Origin` comes
        # from RequestTracing, so that caches keep the answers to different sites apart.
        if origin and origin in self._origins:
            self._allow(response, origin)
            if self._credentials:
                response.set_header("Access-Control-Allow-Credentials", "true")
        elif origin and "*" in self._origins:
            # `*` and never the origin itself: with `*` browsers show no answer to a request with
            # cookies.
            self._allow(response, "*")

    def _allow(self, response: falcon.Response, origin: str) -> None:
        response.set_header("Access-Control-Allow-Origin", origin)
        if self._exposed:
            response.set_header("Access-Control-Expose-Headers", self._exposed)
