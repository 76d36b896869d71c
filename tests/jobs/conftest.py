"""One database with a queue for each module, empty at the begin of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cms.config import Config
from tests.queues import Desk, desk_of


@pytest.fixture(scope="module")
def shared_desk(
    settings: Config, make_database: Callable[..., str], template: str
) -> Iterator[Desk]:
    with desk_of(settings, make_database, template) as desk:
        yield desk


@pytest.fixture
def desk(shared_desk: Desk) -> Desk:
    shared_desk.empty()
    return shared_desk
