"""Runs without flows, for tests of single operations."""

from __future__ import annotations

import pytest

from cms.config import Config
from cms.flows.run import Run, Services
from tests.flows.runs import new_run, services_of
from tests.things import Stage


@pytest.fixture(scope="module")
def services(stage: Stage, settings: Config) -> Services:
    """What operations need; a module that needs other settings has this fixture too."""
    return services_of(stage, settings)


@pytest.fixture
def run(services: Services) -> Run:
    """A run of the service itself."""
    return new_run(services)
