"""/server/specs: descriptions of the service for programs."""

from __future__ import annotations

from collections.abc import Callable

import falcon

from cms.client_types.printing import LANGUAGES, read_types
from cms.errors import invalid_query
from cms.etags import etag_of, matches_etag
from cms.http.requests.cookies import SESSION_COOKIE, mount_path
from cms.http.requests.request import Request
from cms.openapi.caller_documents import read_openapi
from cms.openapi.openapi_document import Served
from cms.store.store import Store


class OpenApiResource:
    """The document of OpenAPI for the caller; `templates` returns the paths of the application."""

    def __init__(self, store: Store, templates: Callable[[], frozenset[str]]) -> None:
        self._store = store
        self._templates = templates

    def on_get(self, request: Request, response: falcon.Response) -> None:
        served = Served(self._templates(), mount_path(request), SESSION_COOKIE)
        document = read_openapi(self._store, request.identity, served)
        _send_text(request, response, document, falcon.MEDIA_JSON)


class TypesResource:
    """The types of the collections that the caller may read, in the language of a client."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response) -> None:
        language = request.get_param("language", default="")
        if language not in LANGUAGES:
            reason = f"language is one of {', '.join(LANGUAGES)}"
            raise invalid_query(reason, parameter="language")
        types = read_types(self._store, request.identity, language)
        _send_text(request, response, types, falcon.MEDIA_TEXT)


def _send_text(request: Request, response: falcon.Response, text: bytes, media_type: str) -> None:
    tag = etag_of(text)
    response.set_header("ETag", tag)
    # Another caller sees another document at the same address.
    response.set_header("Vary", "Origin, Authorization, Cookie")
    if matches_etag(request.get_header("If-None-Match") or "", tag):
        response.status = falcon.HTTP_304
    else:
        # An answer without content has no type of it either.
        response.content_type = media_type
        response.data = text
