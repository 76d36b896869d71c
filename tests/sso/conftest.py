"""A provider that others wrote, and the service, in front of one browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cms.config import Config
from tests.node_packages import install
from tests.sso.forger import Forger, running_forger
from tests.sso.oidc import HERE, RunningProvider, Setup, running_provider
from tests.sso.site import APP_URL, Browser, Site, running_site

NAMES = ("openid", "other", "github")
"""The names that providers have in the tests."""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with oidc-provider."""
    folder = tmp_path_factory.mktemp("sso")
    install(HERE, folder, "provider.mjs")
    return folder


@pytest.fixture
def site(config: Config) -> Iterator[Site]:
    # Half of the threads wait for providers.
    with running_site(replace(config, web_threads=16)) as site:
        yield site


@pytest.fixture
def provider(site: Site, installed: Path) -> Iterator[RunningProvider]:
    callbacks = [site.callback(name) for name in NAMES]
    with running_provider(installed, Setup(callbacks, [APP_URL])) as provider:
        yield provider


@pytest.fixture
def forging() -> Iterator[Forger]:
    with running_forger() as forger:
        yield forger


@pytest.fixture
def browser() -> Iterator[Browser]:
    browser = Browser()
    with browser.session:
        yield browser
