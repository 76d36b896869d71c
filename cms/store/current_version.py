"""The present counters of `system_version`, which are the version of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cms.database.connections import Row
from cms.database.statements import statement
from cms.schema.model import Version


def current_version(fetch: Callable[[str, Sequence[object]], list[Row]]) -> Version:
    """Return the counters as they are now."""
    return Version(*fetch(statement("find_version"), ())[0])
