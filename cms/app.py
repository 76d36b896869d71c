"""The wiring: every route on one screen."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import falcon

from cms.auth.links import Links
from cms.auth.sessions import Issuer
from cms.config import Config, load
from cms.errors import Refused
from cms.files.assets import Assets
from cms.files.files import Library
from cms.http import (
    accounts,
    assets,
    auth,
    factors,
    files,
    history,
    imports,
    items,
    problems,
    rights,
    server,
    structure,
)
from cms.http.bodies import body_of, closing
from cms.http.cookies import Cookies
from cms.http.cors import cors_of
from cms.http.logs import start_logging
from cms.http.middleware import Accounting, Identification, OwnEndpoints
from cms.http.origins import Origins
from cms.http.paths import Router
from cms.http.request import Request
from cms.http.sending import sent
from cms.store.border import Stale
from cms.store.store import Store


class App(falcon.App[Request, falcon.Response]):
    """The WSGI application; `close` gives its connections back and ends its child processes."""

    def __init__(
        self,
        store: Store,
        middleware: Sequence[Any],
        *,
        send_seconds: float,
        closing: Sequence[Callable[[], None]] = (),
    ) -> None:
        super().__init__(middleware=middleware, request_type=Request, router=Router())
        self.store = store
        self._send_seconds = send_seconds
        self._closing = [*closing, store.close]

    def __call__(self, env: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request; what becomes of its connection is decided here, for all resources."""
        env["wsgi.input"] = body = body_of(env)
        answer = super().__call__(env, closing(env, body, start_response))
        return sent(answer, env, self._send_seconds)

    def close(self) -> None:
        for close in self._closing:
            close()

    def add_route(self, uri_template: str, resource: Any, **options: Any) -> None:
        """Add a resource; what answers GET answers HEAD as well, of which Falcon sends the headers only.

        Unless it says itself what HEAD does.
        """
        if hasattr(resource, "on_get") and not hasattr(resource, "on_head"):
            resource.on_head = resource.on_get
        super().add_route(uri_template, resource, **options)


def create_app(config: Config) -> App:
    """Make the WSGI application; it connects to nothing before its first request."""
    store, issuer, most = Store(config), Issuer.of(config), config.max_payload_size
    library = Library.of(store, config)
    shown = Assets(store, library.contents.storages, config)
    origins, cookies, links = Origins.of(config), Cookies.of(config), Links.of(config, issuer.secret)
    identification = Identification(issuer.secret, origins=origins, hops=config.ip_trust_proxy)
    middleware = [Accounting(), *cors_of(config), identification, OwnEndpoints(store)]
    app = App(store, middleware, send_seconds=config.send_timeout.total_seconds(), closing=[shown.close])
    app.add_error_handler(Exception, problems.on_fault)
    app.add_error_handler(falcon.HTTPError, problems.on_http_error)
    app.add_error_handler(Refused, problems.on_refused)
    app.add_error_handler(Stale, problems.on_stale)

    app.add_route("/server/ping", server.Ping())
    app.add_route("/server/health", server.Health(store))
    app.add_route("/server/info", server.Info(store))
    app.add_route("/utils/explain", server.Explain(store))
    app.add_route("/utils/cache/clear", server.ClearCache(store))

    app.add_route("/auth", auth.Providers())
    app.add_route("/auth/login", auth.Login(store, issuer, cookies, most))
    app.add_route("/auth/refresh", auth.Refresh(store, issuer, auth.Holder(cookies, origins), most))
    app.add_route("/auth/logout", auth.Logout(store, auth.Holder(cookies, origins), most))
    app.add_route("/auth/password/request", accounts.RequestReset(store, links.reset, most))
    app.add_route("/auth/password/reset", accounts.Reset(store, links.reset, most))
    _add_people(app, links, issuer.secret, most)
    _add_structure(app, most)
    _add_items(app, most)
    _add_files(app, library)
    app.add_route("/utils/import/{collection}", imports.Import(store, most, config.files_max_upload_size))
    app.add_route("/assets/{key}", assets.Download(shown, config))
    app.add_route("/assets/{key}/{name}", assets.Download(shown, config))
    return app


def _add_people(app: App, links: Links, secret: str, most: int) -> None:
    store = app.store
    app.add_route("/users", items.Items(store, most, of="system_users"))
    app.add_route("/users/{key}", items.Item(store, most, of="system_users"))
    app.add_route("/users/me", auth.Me(store, most))
    app.add_route("/users/invite", accounts.Invite(store, links.invite, most))
    app.add_route("/users/invite/accept", accounts.AcceptInvite(store, links.invite, most))
    app.add_route("/users/register", accounts.Register(store, links.register, most))
    app.add_route("/users/register/verify-email", accounts.VerifyEmail(store, links.register))
    app.add_route("/users/me/tfa/generate", factors.Generate(store, most))
    app.add_route("/users/me/tfa/enable", factors.Enable(store, most))
    app.add_route("/users/me/tfa/disable", factors.Disable(store, most))
    app.add_route("/users/me/tfa/recovery-codes", factors.RecoveryCodes(store, secret, most))
    app.add_route("/roles", items.Items(store, most, of="system_roles"))
    app.add_route("/roles/{key}", items.Item(store, most, of="system_roles"))
    app.add_route("/permissions", items.Items(store, most, of="system_permissions"))
    app.add_route("/permissions/{key}", items.Item(store, most, of="system_permissions"))
    app.add_route("/permissions/explain", rights.Explain(store))
    app.add_route("/permissions/me", rights.Mine(store))
    app.add_route("/permissions/me/{collection}/{key}", rights.Mine(store), suffix="item")
    app.add_route("/settings", items.Settings(store, most))


def _add_structure(app: App, most: int) -> None:
    store = app.store
    app.add_route("/collections", structure.Collections(store, most))
    app.add_route("/collections/{collection}", structure.Collection(store, most))
    app.add_route("/fields", structure.AllFields(store, most))
    app.add_route("/fields/{collection}", structure.Fields(store, most))
    app.add_route("/fields/{collection}/{field}", structure.Field(store, most))
    app.add_route("/relations", structure.Relations(store, most))
    app.add_route("/relations/{collection}", structure.CollectionRelations(store, most))
    app.add_route("/relations/{collection}/{field}", structure.Relation(store, most))


def _add_items(app: App, most: int) -> None:
    store = app.store
    app.add_route("/items/{collection}", items.Items(store, most))
    app.add_route("/items/{collection}/{key}", items.Item(store, most))
    app.add_route("/items/{collection}/{key}/revisions", history.ItemRevisions(store))
    app.add_route("/items/{collection}/{key}/revisions/{revision}", history.ItemRevision(store))
    app.add_route("/batch", items.Batch(store, most))
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


def _add_files(app: App, library: Library) -> None:
    app.add_route("/files", files.Files(library))
    app.add_route("/files/import", files.Import(library))
    app.add_route("/files/{key}", files.File(library))
    app.add_route("/folders", files.Folders(library))
    app.add_route("/folders/{key}", files.Folder(library))


def create_wsgi() -> App:
    """Make the application of the environment's settings, for `gunicorn 'cms.app:create_wsgi()'`."""
    config = load(os.environ, folder=Path.cwd())
    start_logging(config)
    app = create_app(config)
    gc.collect()
    gc.freeze()  # what stays for good is not looked through again whenever a call makes many objects
    return app
