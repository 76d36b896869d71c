"""Types of the collections in the languages of clients: TypeScript and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cms.client_types.client_model import ClientCollection, client_collections
from cms.client_types.python import print_python
from cms.client_types.typescript import print_typescript
from cms.openapi.collection_schemas import VisibleCollections
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store

LANGUAGES: Mapping[str, Callable[[list[ClientCollection]], str]] = MappingProxyType(
    {"typescript": print_typescript, "python": print_python}
)
"""The languages by the names that clients use, with the functions that print types in them."""


def read_types(store: Store, identity: Identity, language: str) -> bytes:
    """Return the types of the collections that a caller may read, in one of `LANGUAGES`."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            answer = _cached_types(context, language=language)
    return answer


def _cached_types(context: RequestContext, *, language: str) -> bytes:
    key = "types", context.actor.policy, language
    return context.snapshot.documents.setdefault_with(key, lambda: _types(context, language))


def _types(context: RequestContext, language: str) -> bytes:
    visible = VisibleCollections.of(context.actor.policy, context.snapshot.catalogue)
    return LANGUAGES[language](client_collections(visible)).encode()
