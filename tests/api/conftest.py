"""One database for all tests of a module, where each test makes collections of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cms.config import Config
from tests.client import Client
from tests.things import Stage, staged


@pytest.fixture(scope="module")
def stage(settings: Config, make_database: Callable[..., str], template: str) -> Iterator[Stage]:
    with staged(settings, make_database, template) as stage:
        yield stage


@pytest.fixture(scope="module")
def admin(stage: Stage) -> Client:
    """The administrator's client of the module's application; quicker than `api` where a test leaves nothing behind."""
    return stage.admin
