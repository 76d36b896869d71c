"""Run pytest, and what fails once more, alone: `python -m tests.retry_failures OPTIONS`.

A test that fails only beside others on a busy machine must not refuse a good change, and must not
be forgotten either: it is printed under the heading "unstable", with its first failure.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

MAX_UNSTABLE = 5


def main(options: Sequence[str]) -> int:
    """Return pytest's exit status: of the first run, or of the second one where it decides."""
    with TemporaryDirectory() as folder:
        first = Path(folder) / "first.xml"
        second = Path(folder) / "second.xml"

        status = run_pytest(*options, f"--junitxml={first}")
        if status != pytest.ExitCode.TESTS_FAILED:
            return status

        failures = failures_of(first)
        if len(failures) > MAX_UNSTABLE:
            print(f"{len(failures)} tests failed: too many to call them unstable.", flush=True)
            return status

        print(f"Running {len(failures)} failed tests again, alone.", flush=True)
        alone = ("--numprocesses=0", "--dist=no", "--last-failed", "--last-failed-no-failures=none")
        status = run_pytest(*options, *alone, f"--junitxml={second}")
        failed_twice = failures_of(second)

    print_unstable({test: text for test, text in failures.items() if test not in failed_twice})
    return status


def run_pytest(*options: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *options], check=False).returncode


def failures_of(report: Path) -> dict[str, str]:
    """Return the text of each failure by the name of its test, from a report in JUnit's format."""
    failures: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname')}::{case.get('name')}"
        for outcome in (*case.iter("failure"), *case.iter("error")):
            failures[test] = failures.get(test, "") + (outcome.text or "")
    return failures


def print_unstable(failures: Mapping[str, str]) -> None:
    if not failures:
        return
    print("\n===== unstable: failed first, and passed alone =====")
    for test, text in failures.items():
        print(f"\n----- {test} -----\n{text}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
