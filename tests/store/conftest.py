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


@pytest.fixture(scope="module")
def migrated_connection(
    module_migrated_dsn: str,
) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection to the module's migrated database."""
    with psycopg.connect(module_migrated_dsn, autocommit=True) as connection:
        yield connection
