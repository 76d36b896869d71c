"""Packages of npm that tests need, installed as a lock file names them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL_SECONDS = 120


def install(source: Path, folder: Path, *programs: str) -> None:
    """Install what `source/package-lock.json` names into a folder, and copy programs beside it.

    Skips the test where that is impossible.
    """
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are needed")
    for name in ("package.json", "package-lock.json", *programs):
        shutil.copy(source / name, folder)
    words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if done.returncode:
        pytest.skip(f"the packages cannot be installed: {done.stderr}")
