"""What may not stand in the address of a request: tokens, and system collections."""

from __future__ import annotations

from collections.abc import Mapping

import falcon

from cms.access.guard import require_not_system
from cms.errors import invalid_query
from cms.http.requests.authenticator import TOKEN_PARAMETER
from cms.http.requests.origins import SAFE_METHODS
from cms.http.requests.request import Request
from cms.schema.system import SYSTEM_PREFIX
from cms.store.store import Store

_MISPLACED_TOKEN = (
    f"{TOKEN_PARAMETER} is for GET /assets alone, because addresses are logged on their way; "
    "send the header Authorization"
)
_ITEM_PATHS = ("/items/", "/utils/")
"""Beginnings of the paths in which `{collection}` must not be a system collection."""


class AddressChecks:
    """Refuses addresses between routing and the resource: the template tells which route it is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def process_resource(
        self,
        request: Request,
        response: falcon.Response,
        resource: object,
        params: Mapping[str, str],
    ) -> None:
        if TOKEN_PARAMETER in request.params:
            _check_token(request, response)
        name = params.get("collection", "")
        if name.startswith(SYSTEM_PREFIX) and request.method != "OPTIONS":
            self._check_system_collection(request, name)

    def _check_system_collection(self, request: Request, name: str) -> None:
        """Refuse a system collection where the path is for other collections."""
        # The same name may stand in other routes, such as /fields.
        if not (request.uri_template or "").startswith(_ITEM_PATHS):
            return
        for attempt in self._store.unversioned_reads(request.identity):
            with attempt as context:
                require_not_system(name, context.actor.policy)


def _check_token(request: Request, response: falcon.Response) -> None:
    """Refuse a token in the address where no browser needs it there."""
    is_asset = (request.uri_template or "").startswith("/assets/")
    if not is_asset or request.method not in SAFE_METHODS:
        raise invalid_query(_MISPLACED_TOKEN, parameter=TOKEN_PARAMETER)
    # Pages that the file leads to must not learn its address.
    response.set_header("Referrer-Policy", "no-referrer")
