"""The two documented applications with the service inside, in the process of the tests."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import webtest

from cms.app import App
from cms.auth import accounts
from cms.config import Config, load
from tests.client import Client
from tests.embedding.documented import DJANGO, FLASK, write_example
from tests.things import admin_token

EMAIL = "ada@example.com"
PASSWORD = "analytical engine"
ORIGIN = "http://localhost"


@dataclass(frozen=True)
class Host:
    """An application with the service under /cms, in which Ada has an account."""

    application: Any
    cms: App
    config: Config
    sign_in: Callable[[webtest.TestApp], None]

    def browser(self) -> webtest.TestApp:
        """Return a browser of somebody who is not signed in; each answer is checked to be WSGI."""
        return webtest.TestApp(self.application, extra_environ={"HTTP_HOST": "localhost"})

    def ada(self) -> webtest.TestApp:
        """Return a browser in which Ada has signed in to the application."""
        browser = self.browser()
        self.sign_in(browser)
        return browser

    @property
    def admin(self) -> Client:
        """The administrator's client of the service, past the application around it."""
        return Client(self.cms).bearing(admin_token(self.config, self.config.database_url or ""))


@contextmanager
def flask_host(folder: Path, dsn: str, **settings: str) -> Iterator[Host]:
    write_example(folder, FLASK, dsn, **settings)
    with _importable(folder, "flask_shop"):
        module = importlib.import_module("flask_shop")
        yield from _hosts(module.app, module, folder, _sign_in_to_flask)


@contextmanager
def django_host(folder: Path, dsn: str, **settings: str) -> Iterator[Host]:
    import django
    from django.conf import settings as django_settings
    from django.core.management import call_command
    from django.db import connections

    write_example(folder, DJANGO, dsn, **settings)
    with pytest.MonkeyPatch.context() as patched, _importable(folder, "shop"):
        patched.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
        patched.setenv("TZ", "UTC")  # as Django does, for good
        django.setup()
        call_command("migrate", verbosity=0)
        call_command("collectstatic", verbosity=0, interactive=False)
        _make_django_user()
        try:
            module = importlib.import_module("shop.wsgi")
            yield from _hosts(module.application, module, folder, _sign_in_to_django)
        finally:
            connections.close_all()
            # Undone for the next test, which may be one of another copy of the example.
            django_settings._wrapped = importlib.import_module("django.utils.functional").empty
    time.tzset()


def _hosts(
    application: Any, module: ModuleType, folder: Path, sign_in: Callable[[webtest.TestApp], None]
) -> Iterator[Host]:
    config = load({}, folder=folder / "content")
    accounts.create_user(str(config.database_url), email=EMAIL, password="not used", role=None)
    try:
        yield Host(application, module.cms, config, sign_in)
    finally:
        module.cms.close()


@contextmanager
def _importable(folder: Path, package: str) -> Iterator[None]:
    """Have the modules of an example imported from a folder, and forget them."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in list(sys.modules):
            if name == package or name.startswith(f"{package}."):
                del sys.modules[name]


def _make_django_user() -> None:
    from django.contrib.auth import get_user_model

    get_user_model().objects.create_superuser("ada", email=EMAIL, password=PASSWORD)


def _sign_in_to_flask(browser: webtest.TestApp) -> None:
    assert browser.post("/login", {"email": EMAIL, "password": PASSWORD}).status_int == 302


def _sign_in_to_django(browser: webtest.TestApp) -> None:
    form = browser.get("/admin/login/").form
    form["username"] = "ada"
    form["password"] = PASSWORD
    assert form.submit().status_int == 302
