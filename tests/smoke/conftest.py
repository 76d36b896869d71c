"""Folders in which the service runs as a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.smoke.running import new_folder, serving


@pytest.fixture(scope="module")
def installed() -> Iterator[Path]:
    """A folder in which the service has run once."""
    with new_folder() as folder:
        with serving(folder):
            pass
        yield folder


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """An empty folder for the settings and data of a service."""
    with new_folder() as folder:
        yield folder
