"""Ways around the service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection to the test's database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection
