"""The wiring: every route on one screen."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import falcon
from falcon.media import Handlers

from cms.auth.mail_links import MailLinks
from cms.auth.sessions import Issuer
from cms.config import Config, load
from cms.config.providers import SAML
from cms.errors import Refused
from cms.extensions import OWN, Extensions
from cms.files.assets import Assets
from cms.files.image_pool import ImagePool
from cms.files.media_library import MediaLibrary
from cms.flows.filter_flows import FlowPayloadFilter
from cms.flows.flow_calls import FlowCalls
from cms.flows.run import Services
from cms.health.checks import Part, database_check
from cms.health.health import Health
from cms.http import (
    accounts,
    assets,
    auth,
    dashboards,
    docs,
    external_logins,
    factors,
    files,
    flows,
    hashes,
    history,
    imports,
    items,
    monitoring,
    rights,
    schema,
    server,
    shares,
    specs,
    structure,
)
from cms.http.answers.error_handlers import add_error_handlers
from cms.http.answers.missing_rights import MissingRights
from cms.http.external_logins import ExternalLogins
from cms.http.middleware.address_checks import AddressChecks
from cms.http.middleware.cors import cors_middleware
from cms.http.middleware.rate_limit import RateLimit
from cms.http.middleware.request_tracing import RequestTracing
from cms.http.middleware.writers import NoteOfWriters
from cms.http.ping import Ping
from cms.http.requests.authenticator import Authenticator, Identify
from cms.http.requests.cookies import Cookies
from cms.http.requests.media import JsonHandler
from cms.http.requests.origins import Origins
from cms.http.requests.paths import PING_PATH, Router, without_last_slash
from cms.http.requests.request import Request
from cms.http.requests.request_body import RequestBody, close_if_unread
from cms.logs import start_logging
from cms.processes.memory import limit_arenas
from cms.processes.slots import WaitSlots
from cms.rate_limits.limiter import RateLimiter, rate_limiter
from cms.schema.system import (
    ACTIVITY,
    DASHBOARDS,
    ENDPOINTS,
    FLOW_DELIVERIES,
    FLOW_RUNS,
    FLOWS,
    NOTIFICATIONS,
    OPERATIONS,
    PANELS,
    PERMISSIONS,
    PRESETS,
    REVISIONS,
    ROLES,
    SHARES,
    TRANSLATIONS,
    USERS,
)
from cms.sso.provider_clients import Providers
from cms.store.recent_writers import recent_writers
from cms.store.store import Store
from cms.tracing import start_tracing


class App(falcon.App[Request, falcon.Response]):
    """The WSGI application; `close` closes its connections and ends its child processes."""

    def __init__(
        self,
        store: Store,
        middleware: Sequence[Any],
        *,
        ping: Ping,
        close_hooks: Sequence[Callable[[], None]] = (),
    ) -> None:
        super().__init__(middleware=middleware, request_type=Request, router=Router())
        self.store = store
        self._ping = ping
        self._templates: set[str] = set()
        self.close_hooks = [*close_hooks, store.close]

    def __call__(self, env: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request; whether its connection is closed is decided here."""
        path = env.setdefault("PATH_INFO", "")
        if path.endswith("/"):
            path = env["PATH_INFO"] = without_last_slash(env)
        if path == PING_PATH and (pong := self._ping.answer(env, start_response)):
            return pong
        # Before Falcon makes its request of it: everything that reads the body reads this one.
        body = env["wsgi.input"] = RequestBody(env)
        if not body.has_ended:
            start_response = close_if_unread(env, body, start_response)
        return super().__call__(env, start_response)

    @property
    def is_immediate(self) -> Callable[[Mapping[str, Any]], bool]:
        """What tells which requests are answered without waiting for anything."""
        return self._ping.is_immediate

    def close(self) -> None:
        for close in self.close_hooks:
            close()

    def add_route(self, uri_template: str, resource: Any, **options: Any) -> None:
        """Add a resource; one that answers GET answers HEAD as well, unless it has `on_head`.

        Falcon sends the headers of such an answer only.
        """
        if hasattr(resource, "on_get") and not hasattr(resource, "on_head"):
            resource.on_head = resource.on_get
        self._templates.add(uri_template)
        super().add_route(uri_template, resource, **options)

    def templates(self) -> frozenset[str]:
        """Return the templates of all paths."""
        return frozenset(self._templates)


def create_app(
    config: Config, identify: Identify | None = None, *, extensions: Extensions = OWN
) -> App:
    """Make the WSGI application; it connects to nothing before its first request.

    `identify` tells who is signed in to an application around this one (docs/embedding.md).
    `extensions` are what it has beside its own.
    """
    issuer = Issuer.from_config(config)
    wait_slots = WaitSlots(config.web_threads)
    writers = recent_writers(config, issuer.secret)
    store = Store(
        config,
        hooks=extensions.store_hooks(),
        writers=writers,
        secret=issuer.secret,
        wait_slots=wait_slots,
    )
    links = MailLinks.from_config(config, issuer.secret)
    image_pool = ImagePool(config, store.database.metrics)
    library = MediaLibrary.from_config(store, config, image_pool)
    asset_source = Assets(store, library.contents.storages, config, image_pool)
    limiter = rate_limiter(config, issuer.secret)
    app = App(
        store,
        _middleware(config, store, issuer, limiter, identify),
        ping=Ping(store.database.metrics, limiter, config, varies_by_cookie=identify is not None),
        close_hooks=[image_pool.close],
    )
    # The only one: a body that is read in another way would have no limit.
    app.req_options.media_handlers = Handlers(
        {falcon.MEDIA_JSON: JsonHandler(max_bytes=config.max_payload_size)}
    )
    add_error_handlers(app)
    app.add_error_handler(Refused, MissingRights(store).on_refused)
    _add_server(app, config, library, extensions)
    external = _external_logins(app, config, issuer, wait_slots)
    app.close_hooks.append(external.providers.close)
    if limiter is not None:
        app.close_hooks.append(limiter.close)
    _add_logins(app, config, issuer, links, external)
    _add_external_logins(app, config, external)
    _add_people(app, links, issuer.secret)
    _add_shares(app, config, issuer, links)
    _add_structure(app, config)
    _add_items(app, config)
    _add_files(app, library)
    _add_flows(app, Services(store, config, extensions.operations, wait_slots))
    _add_dashboards(app)
    import_ = imports.ImportResource(store, config.max_payload_size, config.files_max_upload_size)
    app.add_route("/utils/import/{collection}", import_)
    app.add_route("/assets/{key}", assets.AssetResource(asset_source, config))
    app.add_route("/assets/{key}/{name}", assets.AssetResource(asset_source, config))
    for template, resource_for in extensions.routes.items():
        app.add_route(template, resource_for(store))
    return app


def _middleware(
    config: Config,
    store: Store,
    issuer: Issuer,
    limiter: RateLimiter | None,
    identify: Identify | None,
) -> list[object]:
    """Return the middleware in its order.

    Requests are counted first of all. A preflight is answered before anybody is identified.
    """
    authenticator = Authenticator(
        issuer.secret,
        origins=Origins.from_config(config),
        trusted_proxies=config.ip_trust_proxy,
        identify=identify,
        may_be_unknown=config.embedded_unknown == "public",
    )
    return [
        RequestTracing(store, authenticator, varies_by_cookie=identify is not None),
        *([RateLimit(limiter)] if limiter else []),
        *cors_middleware(config),
        AddressChecks(store),
        *([NoteOfWriters(store.writers)] if store.writers else []),
    ]


def _add_server(app: App, config: Config, library: MediaLibrary, extensions: Extensions) -> None:
    store = app.store
    app.add_route("/server/ping", server.PingResource())
    parts: list[Part] = []
    for parts_for in extensions.checks:
        parts += parts_for(config, store, library.contents.storages)
    health = Health(database_check(store), parts)
    app.add_route("/server/health", monitoring.HealthResource(store, health))
    app.add_route("/server/info", server.InfoResource(store))
    app.add_route("/server/specs/oas", specs.OpenApiResource(store, app.templates))
    app.add_route("/server/specs/types", specs.TypesResource(store))
    if config.openapi_docs:
        app.add_route("/docs", docs.DocsResource())
        app.add_route("/docs/{name}", docs.DocsFileResource())
    app.add_route("/metrics", monitoring.MetricsResource(store, config))
    app.add_route("/utils/explain", server.ExplainResource(store))
    app.add_route("/utils/cache/clear", server.ClearCacheResource(store))
    app.add_route("/utils/hash/generate", hashes.GenerateHashResource(store))
    app.add_route("/utils/hash/verify", hashes.VerifyHashResource(store))
    app.add_route("/utils/random/string", hashes.RandomStringResource(store))


def _add_logins(
    app: App, config: Config, issuer: Issuer, links: MailLinks, external: ExternalLogins
) -> None:
    store = app.store
    cookies = Cookies.from_config(config)
    token_source = auth.RefreshTokenSource(cookies, Origins.from_config(config))
    app.add_route("/auth", auth.ProvidersResource(config))
    app.add_route(
        "/auth/login",
        auth.LoginResource(store, issuer, cookies, config, external.log_in_by_directory),
    )
    app.add_route("/auth/refresh", auth.RefreshResource(external.refresh, token_source))
    app.add_route("/auth/logout", auth.LogoutResource(store, token_source))
    app.add_route("/auth/password/request", accounts.ResetRequestResource(store, links.reset))
    app.add_route("/auth/password/reset", accounts.PasswordResetResource(store, links.reset))


def _external_logins(
    app: App, config: Config, issuer: Issuer, wait_slots: WaitSlots
) -> ExternalLogins:
    return ExternalLogins(
        app.store,
        issuer,
        Providers.from_config(config, app.store, issuer.secret),
        Cookies.from_config(config),
        wait_slots,
    )


def _add_external_logins(app: App, config: Config, logins: ExternalLogins) -> None:
    resource = external_logins.ExternalLoginResource(logins, Origins.from_config(config))
    app.add_route("/auth/login/{provider}", resource)
    app.add_route("/auth/login/{provider}/callback", external_logins.CallbackResource(logins))
    if any(provider.driver == SAML for provider in config.providers):
        # Only here: its libraries are an extra.
        from cms.http import saml

        app.add_route("/auth/login/{provider}/acs", saml.AnswerResource(logins))
        app.add_route("/auth/login/{provider}/metadata", saml.MetadataResource(logins))
        app.add_route("/auth/login/{provider}/slo", saml.SingleLogoutResource(logins))


def _add_system_items(app: App, *collections: str) -> None:
    """Add the routes of system collections whose rows are read and written like items."""
    for collection in collections:
        path = ENDPOINTS[collection]
        app.add_route(path, items.ItemsResource(app.store, collection=collection))
        app.add_route(f"{path}/{{key}}", items.ItemResource(app.store, collection=collection))


def _add_people(app: App, links: MailLinks, secret: str) -> None:
    store = app.store
    _add_system_items(app, USERS, ROLES, PERMISSIONS, NOTIFICATIONS, PRESETS, TRANSLATIONS)
    app.add_route("/users/me", auth.MeResource(store))
    app.add_route("/users/me/track/page", auth.LastPageResource(store))
    app.add_route("/users/invite", accounts.InviteResource(store, links.invite))
    app.add_route("/users/invite/accept", accounts.AcceptInviteResource(store, links.invite))
    app.add_route("/users/register", accounts.RegisterResource(store, links.register))
    app.add_route(
        "/users/register/verify-email", accounts.VerifyEmailResource(store, links.register)
    )
    app.add_route("/users/me/tfa/generate", factors.GenerateResource(store))
    app.add_route("/users/me/tfa/enable", factors.EnableResource(store))
    app.add_route("/users/me/tfa/disable", factors.DisableResource(store))
    app.add_route("/users/me/tfa/recovery-codes", factors.RecoveryCodesResource(store, secret))
    app.add_route("/permissions/explain", rights.ExplainRightsResource(store))
    app.add_route("/permissions/me", rights.MyPermissionsResource(store))
    for path in ("/permissions/me/{collection}", "/permissions/me/{collection}/{key}"):
        app.add_route(path, rights.MyPermissionsResource(store), suffix="item")
    app.add_route("/settings", items.SettingsResource(store))


def _add_shares(app: App, config: Config, issuer: Issuer, links: MailLinks) -> None:
    store = app.store
    cookies = Cookies.from_config(config)
    _add_system_items(app, SHARES)
    app.add_route("/shares/auth", shares.ShareLoginResource(store, issuer, cookies))
    app.add_route("/shares/info/{key}", shares.ShareInfoResource(store))
    app.add_route("/shares/invite", shares.ShareInviteResource(store, links.share))


def _add_structure(app: App, config: Config) -> None:
    store = app.store
    app.add_route("/collections", structure.CollectionsResource(store))
    app.add_route("/collections/{collection}", structure.CollectionResource(store))
    app.add_route("/fields", structure.AllFieldsResource(store))
    app.add_route("/fields/{collection}", structure.FieldsResource(store))
    app.add_route("/fields/{collection}/{field}", structure.FieldResource(store))
    app.add_route("/relations", structure.RelationsResource(store))
    app.add_route("/relations/{collection}", structure.CollectionRelationsResource(store))
    app.add_route("/relations/{collection}/{field}", structure.RelationResource(store))
    app.add_route("/schema/snapshot", schema.SchemaSnapshotResource(store))
    app.add_route("/schema/diff", schema.SchemaDiffResource(store, config.max_payload_size))
    app.add_route("/schema/apply", schema.SchemaApplyResource(store, config.max_payload_size))


def _add_items(app: App, config: Config) -> None:
    store = app.store
    app.add_route("/items/{collection}", items.ItemsResource(store))
    app.add_route("/items/{collection}/{key}", items.ItemResource(store))
    app.add_route("/items/{collection}/{key}/revisions", history.ItemRevisionsResource(store))
    app.add_route(
        "/items/{collection}/{key}/revisions/{revision}", history.ItemRevisionResource(store)
    )
    app.add_route("/batch", items.BatchResource(store, config.max_payload_size))
    app.add_route("/activity", history.SystemItemsResource(store, ACTIVITY))
    app.add_route("/activity/{key}", history.SystemItemResource(store, ACTIVITY))
    app.add_route("/activity/comment", history.CommentWritesResource(store))
    app.add_route("/activity/comment/{key}", history.CommentResource(store))
    app.add_route("/comments", history.CommentsResource(store))
    app.add_route("/comments/{key}", history.ReadableCommentResource(store))
    app.add_route("/revisions", history.SystemItemsResource(store, REVISIONS))
    app.add_route("/revisions/{key}", history.SystemItemResource(store, REVISIONS))
    app.add_route("/utils/sort/{collection}", items.SortResource(store))
    app.add_route("/utils/revert/{revision}", history.RevertResource(store))


def _add_files(app: App, library: MediaLibrary) -> None:
    app.add_route("/files", files.FilesResource(library))
    app.add_route("/files/import", files.FileImportResource(library))
    app.add_route("/utils/export/{collection}", files.ExportResource(library))
    app.add_route("/files/{key}", files.FileResource(library))
    app.add_route("/folders", files.FoldersResource(library))
    app.add_route("/folders/{key}", files.FolderResource(library))


def _add_flows(app: App, services: Services) -> None:
    store = app.store
    app.close_hooks.append(services.scripts.close)
    store.payload_filter = FlowPayloadFilter(services)
    calls = FlowCalls(services)
    _add_system_items(app, FLOWS, OPERATIONS)
    app.add_route("/flows/trigger/{key}", flows.TriggerResource(calls))
    app.add_route("/flows/runs", history.SystemItemsResource(store, FLOW_RUNS))
    app.add_route("/flows/runs/{key}", history.SystemItemResource(store, FLOW_RUNS))
    app.add_route("/flows/runs/{key}/retry", flows.RetryResource(store))
    app.add_route("/flows/{key}/runs", flows.FlowRowsResource(store, FLOW_RUNS))
    app.add_route("/flows/deliveries", history.SystemItemsResource(store, FLOW_DELIVERIES))
    app.add_route("/flows/deliveries/{key}", history.SystemItemResource(store, FLOW_DELIVERIES))
    app.add_route("/flows/{key}/deliveries", flows.FlowRowsResource(store, FLOW_DELIVERIES))


def _add_dashboards(app: App) -> None:
    store = app.store
    _add_system_items(app, DASHBOARDS, PANELS)
    app.add_route("/dashboards/{key}/data", dashboards.DashboardDataResource(store))
    app.add_route("/panels/{key}/data", dashboards.PanelDataResource(store))


def create_wsgi() -> App:
    """Make the application by the environment, for `gunicorn 'cms.app:create_wsgi()'`."""
    config = load(os.environ, folder=Path.cwd())
    start_logging(config)
    limit_arenas()
    app = create_app(config)
    app.store.database.metrics.open()
    start_tracing(os.environ)
    gc.collect()
    # Objects that stay for good are not searched again whenever a request makes many objects.
    gc.freeze()
    return app
