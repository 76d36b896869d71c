"""Tests that fail run once more, alone: `make check` tells unstable ones from broken ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.release

CHECKOUT = Path(__file__).parents[2]

FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({number}))
def test_that_blinks(number):
    ran = Path(__file__).with_name(f"ran-{{number}}")
    if not ran.exists():
        ran.touch()
        assert number == "the first time"
"""
FAILS_ALWAYS = "def test_that_is_broken():\n    assert 1 == 2\n"
PASSES = "def test_that_is_good():\n    pass\n"


@pytest.mark.parametrize(
    ("tests", "status", "printed", "missing"),
    [
        ([PASSES], 0, "1 passed", "again"),
        ([PASSES, FAILS_ONCE.format(number=5)], 0, "unstable: ", "failed tests again\n"),
        ([PASSES, FAILS_ONCE.format(number=6)], 1, "6 tests failed", "unstable: "),
        ([FAILS_ALWAYS], 1, "1 failed", "unstable: "),
        ([FAILS_ALWAYS, FAILS_ONCE.format(number=1)], 1, "test_that_blinks[0] -----", "too many"),
        (["import that_is_missing"], 2, "1 error", "again"),
    ],
    ids=["passes", "five unstable", "six unstable", "broken", "one of each", "not collected"],
)
@pytest.mark.quick(2)
def test_a_run_fails_for_what_fails_twice_and_for_more_than_five_unstable_tests(
    tmp_path: Path, tests: list[str], status: int, printed: str, missing: str
) -> None:
    run = run_tests(tmp_path, *tests)
    assert run.returncode == status, run.stdout + run.stderr
    assert printed in run.stdout
    assert missing not in run.stdout


def test_the_first_failure_of_an_unstable_test_is_printed_in_full(tmp_path: Path) -> None:
    run = run_tests(tmp_path, FAILS_ONCE.format(number=1))
    _, _, unstable = run.stdout.partition("===== unstable")
    assert 'assert number == "the first time"' in unstable


def run_tests(folder: Path, *texts: str) -> subprocess.CompletedProcess[str]:
    for number, text in enumerate(texts):
        (folder / f"test_part{number}.py").write_text(text)
    options = ["-c", os.devnull, "--rootdir", str(folder), "-o", f"cache_dir={folder}/cache"]
    return subprocess.run(
        [sys.executable, "-m", "tests.retry_failures", *options, "-p", "no:schemathesis", folder],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
