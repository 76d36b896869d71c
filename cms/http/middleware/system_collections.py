"""System collections in paths that are for other collections."""

from __future__ import annotations

from collections.abc import Mapping

import falcon

from cms.access.endpoints import require_not_system
from cms.schema.system import is_system
from cms.store.store import Store

_ITEM_PATHS = ("/items/", "/utils/")
"""Beginnings of the paths in which `{collection}` must not be a system collection."""


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
            for attempt in self._store.unversioned_reads(request.context.identity):
                with attempt as context:
                    require_not_system(name, context.actor.policy)
