"""The JavaScript SDK of Directus works unchanged: calls.mjs uses it against a running service."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.smoke.running import new_folder, serving

pytestmark = [pytest.mark.slow, pytest.mark.release]

HERE = Path(__file__).parent
CALLS = HERE / "calls.mjs"
PARTS = re.findall(r"^  async (\w+)\(\) \{$", CALLS.read_text(), re.MULTILINE)
PACKAGES = ("sdk-of-directus-10", "sdk-of-directus-11")

CALL_SECONDS = 120
EMAIL = "admin@example.com"
PASSWORD = "correct horse battery staple"

Outcomes = Mapping[str, str | None]
"""What went wrong with each part, None where nothing did."""


@contextmanager
def service() -> Iterator[str]:
    """Run the service and yield its address."""
    account = {"ADMIN_EMAIL": EMAIL, "ADMIN_PASSWORD": PASSWORD}
    with new_folder() as folder, serving(folder, **account) as running:
        yield f"http://127.0.0.1:{running.port}"


@pytest.fixture(scope="module", params=PACKAGES)
def outcomes(request: pytest.FixtureRequest, installed: Path) -> Outcomes:
    with service() as url:
        done = subprocess.run(
            ["node", "calls.mjs", request.param, url, EMAIL, PASSWORD],
            cwd=installed,
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    result: Outcomes = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("part", PARTS)
def test_the_sdk_works_unchanged(outcomes: Outcomes, part: str) -> None:
    assert outcomes[part] is None, outcomes[part]
