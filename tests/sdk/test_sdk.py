"""The JavaScript SDK of Directus works unchanged: calls.mjs runs all that it exports."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.databases import drop_database, run_sql
from tests.smoke.running import Service, new_folder, serving

pytestmark = [pytest.mark.slow, pytest.mark.release]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PARTS = sorted(
    name
    for file in HERE.glob("*_parts.mjs")
    for name in re.findall(r"^  async (\w+)\(\) \{$", file.read_text(), re.MULTILINE)
)
PACKAGES = ("sdk-of-directus-10", "sdk-of-directus-11", "newest-sdk")

CALL_SECONDS = 240  # for some hundred calls, on a machine that runs other tests beside
EMAIL = "admin@example.com"
PASSWORD = "correct horse battery staple"
SETTINGS = {
    "ADMIN_EMAIL": EMAIL,
    "ADMIN_PASSWORD": PASSWORD,
    "EMAIL_TRANSPORT": "log",
    "IMPORT_IP_ALLOW_LIST": "127.0.0.1",
}


class Run(NamedTuple):
    """What calls.mjs prints about one version of the SDK."""

    outcomes: Mapping[str, str | None]
    """What went wrong with each part, None where nothing did."""
    sent: frozenset[str]
    exported: frozenset[str]
    problems: list[str]
    """Commands that are listed as without a counterpart, and have one."""


class Listed(NamedTuple):
    """What without_counterpart.mjs lists: reasons by command, and what sends nothing."""

    reasons: Mapping[str, str]
    helpers: frozenset[str]


# The SDK makes no table with a key of several columns.
TABLES = """
CREATE TABLE sdk_lines (document text, line integer, title text, PRIMARY KEY (document, line))
"""


@contextmanager
def service(**environ: str) -> Iterator[Service]:
    with new_folder() as folder, serving(folder, **SETTINGS, **environ) as running:
        yield running


def node(folder: Path, *words: str) -> Any:
    """Run a script and return what it printed as JSON."""
    done = subprocess.run(
        ["node", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=CALL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=PACKAGES)
def result(
    request: pytest.FixtureRequest, installed: Path, make_database: Callable[..., str]
) -> Run:
    dsn = make_database()
    run_sql(dsn, TABLES)
    with service(DATABASE_URL=dsn) as running:
        url = f"http://127.0.0.1:{running.port}"
        words = (request.param, url, EMAIL, PASSWORD, str(running.output))
        printed = node(installed, "calls.mjs", *words)
    drop_database(dsn)
    return Run(
        outcomes=printed["outcomes"],
        sent=frozenset(printed["sent"]),
        exported=frozenset(printed["exported"]),
        problems=printed["problems"],
    )


@pytest.fixture(scope="module")
def listed(installed: Path) -> Listed:
    script = (
        "import { counterparts, helpers } from './without_counterpart.mjs';"
        "console.log(JSON.stringify({ counterparts, helpers }))"
    )
    printed = node(installed, "--input-type=module", "--eval", script)
    reasons = {name: entry["reason"] for name, entry in printed["counterparts"].items()}
    return Listed(reasons, frozenset(printed["helpers"]))


@pytest.mark.parametrize("part", PARTS)
def test_the_sdk_works_unchanged(result: Run, part: str) -> None:
    assert result.outcomes[part] is None, result.outcomes[part]


def test_every_command_runs_or_is_listed_with_a_reason(result: Run, listed: Listed) -> None:
    known = result.sent | listed.reasons.keys() | listed.helpers
    assert result.exported - known == set(), "run these in a part, or list them with a reason"


def test_no_command_that_runs_is_listed_as_missing(result: Run, listed: Listed) -> None:
    assert result.sent & (listed.reasons.keys() | listed.helpers) == set()


def test_what_is_listed_as_missing_is_refused(result: Run) -> None:
    assert result.problems == []


def test_the_documentation_lists_every_command_without_a_counterpart(listed: Listed) -> None:
    section = (ROOT / "docs" / "directus.md").read_text().split("## Commands of the SDK")[1]
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", section.split("\n## ")[0], re.MULTILINE)
    documented = {name: reason for names, reason in rows for name in re.findall(r"`(\w+)`", names)}
    assert documented == listed.reasons
