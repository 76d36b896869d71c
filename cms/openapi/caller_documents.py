"""The description of the service for a caller, kept as long as structure and rights stay."""

from __future__ import annotations

from collections.abc import Mapping

from cms import jsontext
from cms.openapi.collection_schemas import VisibleCollections
from cms.openapi.openapi_document import Served, openapi_document
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store


def read_openapi(store: Store, identity: Identity, served: Served) -> bytes:
    """Return the document of OpenAPI for a caller, as JSON."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            answer = _cached_openapi(context, served=served)
    return answer


def _cached_openapi(context: RequestContext, *, served: Served) -> bytes:
    # Callers with equal policies are shown the same.
    key = "openapi", context.actor.policy, served.prefix
    return context.snapshot.documents.setdefault_with(key, lambda: _openapi(context, served))


def _openapi(context: RequestContext, served: Served) -> bytes:
    visible = VisibleCollections.of(context.actor.policy, context.snapshot.catalogue)
    return jsontext.dumps(_plain(openapi_document(visible, served)))


def _plain(value: object) -> object:
    """Return a value with dicts for all mappings, which are written as JSON."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    return value
