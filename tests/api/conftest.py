"""Collections that tests of several modules use."""

from __future__ import annotations

import pytest

from tests.api.nesting import make_relations
from tests.things import Stage


@pytest.fixture(scope="module")
def nested_collections(stage: Stage) -> None:
    """The collections of `tests.api.nesting`, with every kind of relation."""
    make_relations(stage.admin)
