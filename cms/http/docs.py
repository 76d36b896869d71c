"""/docs: the description of the service as a page for people."""

from __future__ import annotations

import secrets

import falcon

from cms.etags import matches_etag
from cms.http.requests.paths import sent_path
from cms.http.requests.request import Request
from cms.openapi.docs_page import page_file, page_html, page_policy

_NONCE_BYTES = 16


class DocsResource:
    def on_get(self, request: Request, response: falcon.Response) -> None:
        """Answer the page; it shows the document that its reader's token or cookie gets."""
        if sent_path(request.env).endswith("/docs/"):
            # The page names its files by paths that begin at the folder of /docs.
            response.status = falcon.HTTP_308
            response.location = "../docs"
            return
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        response.content_type = "text/html; charset=utf-8"
        response.text = page_html(nonce)
        response.set_header("Content-Security-Policy", page_policy(nonce))
        response.set_header("X-Frame-Options", "DENY")
        response.set_header("X-Content-Type-Options", "nosniff")
        response.set_header("Referrer-Policy", "no-referrer")
        # A page that a browser has stored would have the nonce of an earlier answer.
        response.set_header("Cache-Control", "no-store")


class DocsFileResource:
    def on_get(self, request: Request, response: falcon.Response, name: str) -> None:
        """Answer a file that the page loads; browsers keep it and ask whether it has changed."""
        file = page_file(name)
        response.set_header("ETag", file.etag)
        response.set_header("X-Content-Type-Options", "nosniff")
        if matches_etag(request.get_header("If-None-Match") or "", file.etag):
            response.status = falcon.HTTP_304
        else:
            response.content_type = file.media_type
            response.data = file.content
