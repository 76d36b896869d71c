"""The JavaScript SDK of Directus and TypeScript, installed once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node_packages import install

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all versions of the SDK that are tested."""
    folder = tmp_path_factory.mktemp("sdk")
    install(HERE, folder, *(script.name for script in HERE.glob("*.mjs")))
    return folder
