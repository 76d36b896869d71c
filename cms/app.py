"""The wiring: every route on one screen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import falcon

from cms.auth.sessions import Issuer
from cms.config import Config, load
from cms.errors import Refused
from cms.http import auth, history, items, problems, rights, server, structure
from cms.http.logs import start_logging
from cms.http.middleware import Accounting, Identification
from cms.http.request import Request
from cms.store.border import Stale
from cms.store.store import Store


class App(falcon.App[Request, falcon.Response]):
    """The WSGI application; `close` gives its connections back."""

    def __init__(self, store: Store, secret: str) -> None:
        super().__init__(middleware=[Accounting(), Identification(secret)], request_type=Request)
        self.store = store
        self.close = store.close

    def add_route(self, uri_template: str, resource: Any, **options: Any) -> None:
        """Add a resource; what answers GET answers HEAD as well, of which Falcon sends the headers only."""
        if hasattr(resource, "on_get"):
            resource.on_head = resource.on_get
        super().add_route(uri_template, resource, **options)


def create_app(config: Config) -> App:
    """Make the WSGI application; it connects to nothing before its first request."""
    store, issuer, most = Store(config), Issuer.of(config), config.max_payload_size
    app = App(store, issuer.secret)
    app.add_error_handler(Exception, problems.on_fault)
    app.add_error_handler(falcon.HTTPError, problems.on_http_error)
    app.add_error_handler(Refused, problems.on_refused)
    app.add_error_handler(Stale, problems.on_stale)

    app.add_route("/server/ping", server.Ping())
    app.add_route("/server/health", server.Health(store))
    app.add_route("/server/info", server.Info(store))
    app.add_route("/utils/explain", server.Explain(store))
    app.add_route("/utils/cache/clear", server.ClearCache(store))

    app.add_route("/auth/login", auth.Login(store, issuer, most))
    app.add_route("/auth/refresh", auth.Refresh(store, issuer, most))
    app.add_route("/auth/logout", auth.Logout(store, most))
    app.add_route("/users/me", auth.Me(store))

    app.add_route("/permissions/me", rights.Mine(store))
    app.add_route("/permissions/me/{collection}/{key}", rights.Mine(store), suffix="item")

    app.add_route("/collections", structure.Collections(store, most))
    app.add_route("/collections/{collection}", structure.Collection(store, most))
    app.add_route("/fields", structure.AllFields(store, most))
    app.add_route("/fields/{collection}", structure.Fields(store, most))
    app.add_route("/fields/{collection}/{field}", structure.Field(store, most))
    app.add_route("/relations", structure.Relations(store, most))
    app.add_route("/relations/{collection}", structure.CollectionRelations(store, most))
    app.add_route("/relations/{collection}/{field}", structure.Relation(store, most))

    app.add_route("/items/{collection}", items.Items(store, most))
    app.add_route("/items/{collection}/{key}", items.Item(store, most))
    app.add_route("/items/{collection}/{key}/revisions", history.ItemRevisions(store))
    app.add_route("/items/{collection}/{key}/revisions/{revision}", history.ItemRevision(store))

    app.add_route("/activity", history.Listing(store, most, "system_activity"))
    app.add_route("/activity/{key}", history.Entry(store, "system_activity"))
    app.add_route("/activity/comment", history.NewComment(store, most))
    app.add_route("/activity/comment/{key}", history.Comment(store, most))
    app.add_route("/comments", history.Comments(store, most))
    app.add_route("/comments/{key}", history.OneComment(store, most))
    app.add_route("/revisions", history.Listing(store, most, "system_revisions"))
    app.add_route("/revisions/{key}", history.Entry(store, "system_revisions"))
    app.add_route("/utils/sort/{collection}", items.Sort(store, most))
    app.add_route("/utils/revert/{revision}", history.Revert(store))
    return app


def create_wsgi() -> App:
    """Make the application of the environment's settings, for `gunicorn 'cms.app:create_wsgi()'`."""
    config = load(os.environ, folder=Path.cwd())
    start_logging(config)
    return create_app(config)
