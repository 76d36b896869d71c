"""The JavaScript SDK of Directus and TypeScript, installed once for all tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INSTALL_SECONDS = 120


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both versions of the SDK."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are needed")
    folder = tmp_path_factory.mktemp("sdk")
    for name in ("package.json", "package-lock.json", "calls.mjs"):
        shutil.copy(HERE / name, folder)
    words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if done.returncode:
        pytest.skip(f"the SDK cannot be installed: {done.stderr}")
    return folder
