"""The service as a browser sees it: on a port of its own, in this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import psycopg
import requests

from cms.app import App, create_app
from cms.config import Config, load
from tests.client import Client
from tests.things import admin_token

SECONDS = 60
MAX_STEPS = 20

APP_URL = "http://app.test/signed-in"
"""Where users end: no server is there, the browser only sees that it is sent to it."""

Json = dict[str, Any]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        """Write no line for each request."""


@dataclass
class Browser:
    """A browser that follows redirects by itself, one at a time, and keeps cookies."""

    session: requests.Session = field(default_factory=requests.Session)
    visited: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session.trust_env = False

    def get(self, url: str, **headers: str) -> requests.Response:
        """GET an address without following a redirect."""
        self.visited.append(url)
        return self.session.get(url, headers=headers, allow_redirects=False, timeout=SECONDS)

    def post(self, url: str, **more: Any) -> requests.Response:
        return self.session.post(url, allow_redirects=False, timeout=SECONDS, **more)

    def follow(self, response: requests.Response, *, until: str | None = None) -> requests.Response:
        """Follow redirects to a page that is none, or to an address that begins with `until`.

        Then the answer is the redirect to it.
        """
        for _ in range(MAX_STEPS):
            if response.status_code not in (302, 303):
                return response
            target = target_of(response)
            if target.startswith(until or APP_URL):
                return response
            response = self.get(target)
        raise AssertionError(f"the browser is sent around: {self.visited[-5:]}")

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie whose name begins so."""
        for cookie in self.session.cookies:
            if cookie.name.startswith(name):
                return cookie.value
        return None


def target_of(response: requests.Response) -> str:
    """Return the address to which an answer sends the browser."""
    return urljoin(response.url, response.headers["Location"])


def query_of(url: str) -> dict[str, str]:
    """Return the parameters of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


@dataclass
class Site:
    """The service under test; `configure` gives it other settings on the same port."""

    url: str
    config: Config
    server: WSGIServer
    app: App | None = None

    def configure(self, providers: Mapping[str, Mapping[str, str]], **more: str) -> None:
        """Start the application with providers, whose settings are given by their names."""
        environ = {"SECRET": self.config.secret or "", "PUBLIC_URL": self.url, **more}
        environ["AUTH_PROVIDERS"] = ",".join(providers)
        for settings in providers.values():
            environ |= settings
        loaded = load(environ, folder=Path("/nonexistent"))
        self.restart(
            replace(
                self.config,
                public_url=self.url,
                providers=loaded.providers,
                auth_providers=loaded.auth_providers,
                auth_disable_default=loaded.auth_disable_default,
                session_cookie_secure=loaded.session_cookie_secure,
            )
        )

    def restart(self, config: Config) -> None:
        """Start another process of the same service: it remembers nothing but the database."""
        if self.app:
            self.app.close()
        self.config = config
        self.app = create_app(config)
        self.server.set_app(self.app)

    @property
    def anonymous(self) -> Client:
        assert self.app
        return Client(self.app)

    @property
    def admin(self) -> Client:
        return self.anonymous.bearing(admin_token(self.config, self.config.database_url or ""))

    def callback(self, provider: str) -> str:
        return f"{self.url}/auth/login/{provider}/callback"

    def login_url(self, provider: str, redirect: str | None = None) -> str:
        url = f"{self.url}/auth/login/{provider}"
        return url if redirect is None else f"{url}?redirect={redirect}"

    def begin(
        self, browser: Browser, provider: str, redirect: str | None = None
    ) -> requests.Response:
        """Lead a browser to the page where users log in."""
        return browser.follow(browser.get(self.login_url(provider, redirect)))

    def answer_url(
        self, browser: Browser, provider: str, account: str, redirect: str | None = None
    ) -> str:
        """Log a user in at the provider; return where the browser is sent with the answer."""
        page = browser.follow(browser.get(self.login_url(provider, redirect)), until=self.url)
        if page.status_code == 200:
            assert "<form" in page.text, page.text
            page = browser.post(page.url, data={"account": account})
        redirected = browser.follow(page, until=self.url)
        assert redirected.status_code in (302, 303), redirected.text
        return target_of(redirected)

    def log_in(
        self, browser: Browser, provider: str, account: str, redirect: str | None = None
    ) -> requests.Response:
        """Log a user in; return the service's answer to the callback."""
        return browser.get(self.answer_url(browser, provider, account, redirect))

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Run a statement behind the service's back, and return its rows if there are any."""
        with psycopg.connect(self.config.database_url or "", autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def users(self) -> list[Json]:
        """Return the users of providers as they are stored, in order of their identifiers."""
        rows = self.rows(
            """
            SELECT to_jsonb(users) FROM system_users AS users
            WHERE provider <> 'default' ORDER BY external_identifier
            """
        )
        return [row[0] for row in rows]

    def role(self, name: str, **more: object) -> str:
        """Make a role and return its id."""
        return str(self.admin.post("/roles", {"name": name, **more}).data["id"])


def codes_of(response: requests.Response) -> list[str]:
    """Return the codes of a refusal."""
    return [error["extensions"]["code"] for error in response.json()["errors"]]


def reason_of(response: requests.Response) -> str | None:
    """Return the reason of a refusal in the address to which a browser is sent."""
    assert response.status_code == 302, response.text
    target = target_of(response)
    assert re.match(re.escape(APP_URL) + r"(\?|$)", target), target
    return query_of(target).get("reason")


def _no_application(environ: object, start_response: object) -> list[bytes]:
    raise AssertionError("the site is not configured yet")


@contextmanager
def running_site(config: Config) -> Iterator[Site]:
    """Listen on a port; the application comes with `configure`."""
    server = make_server("127.0.0.1", 0, _no_application, _Server, _Handler)
    # Another name than the provider's: cookies know no ports.
    site = Site(f"http://localhost:{server.server_port}", config, server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        if site.app:
            site.app.close()
