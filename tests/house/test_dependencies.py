"""The lock file has hashes, licences are listed and allowed, an audit says what it has audited."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

ROOT = Path(__file__).parent.parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PAGE = (ROOT / "docs" / "licences.md").read_text()
ENTRIES = re.split(r"^(?=\S)", LOCK, flags=re.MULTILINE)


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Run make on an environment that counts as installed."""
    return subprocess.run(
        ["make", "--assume-old=.venv/.locked", "--assume-old=.venv/.installed", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_everything_in_the_lock_file_has_hashes() -> None:
    packages = [entry for entry in ENTRIES if "==" in entry]
    assert len(packages) > 100
    assert [entry for entry in packages if "--hash=sha256:" not in entry] == []


def test_the_lock_file_names_no_address() -> None:
    assert "://" not in LOCK
    assert "--index" not in LOCK


def test_make_installs_nothing_whose_hash_is_not_locked() -> None:
    words = ["make", "--dry-run", "--always-make", ".venv/.installed"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.replace("\\\n", " ").splitlines()
    locked, service = [line for line in lines if "install --quiet" in line]
    assert "--require-hashes --requirement requirements.lock" in locked
    # The service itself, which neither brings nor is built with anything else, and fails without.
    assert "--no-index" in service
    assert "--no-build-isolation" in service


def test_every_locked_package_is_on_the_page_of_licences() -> None:
    everywhere = re.findall(r"^([\w.-]+)(?:\[.*\])?==\S+ \\$", LOCK, re.M)
    listed = {re.sub(r"[._-]+", "-", name).lower() for name in re.findall(r"^\| (\S+)", PAGE, re.M)}
    assert set(everywhere) - listed == set(), "`make lock` writes the page"


@pytest.mark.release
def test_every_installed_package_has_a_licence_that_is_allowed() -> None:
    words = [sys.executable, "-m", "piplicenses"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


NOTHING_KNOWN = "No known vulnerabilities found"
SKIPPED = "jinja2  Dependency not found on PyPI and could not be audited: jinja2 (2.0)"
NO_ANSWER = "requests.exceptions.ConnectionError: Failed to resolve 'pypi.org'"
VULNERABLE = "Found 1 known vulnerability in 1 package\njinja2  2.0  PYSEC-1  2.1"


@pytest.mark.parametrize(
    ("report", "status", "expected", "passes"),
    [
        (NOTHING_KNOWN, 0, NOTHING_KNOWN, True),
        (f"{NOTHING_KNOWN}\n{SKIPPED}", 0, "NOT AUDITED: 1 packages", True),
        (f"Traceback\n{NO_ANSWER}", 1, "NOT AUDITED: the service cannot be reached", True),
        (VULNERABLE, 1, "jinja2  2.0  PYSEC-1  2.1", False),
        (f"{VULNERABLE}\n{SKIPPED}", 1, "NOT AUDITED: 1 packages", False),
        ("ERROR:pip_audit._cli: invalid requirement", 1, "invalid requirement", False),
    ],
)
def test_an_audit_fails_for_a_vulnerability_and_says_what_it_could_not_ask(
    tmp_path: Path, report: str, status: int, expected: str, *, passes: bool
) -> None:
    (tmp_path / "report").write_text(f"{report}\n")
    audit = tmp_path / "python"
    audit.write_text(f'#!/bin/sh\ncat "{tmp_path}/report"\nexit {status}\n')
    audit.chmod(0o755)
    done = make("audit", f"PY={audit}")
    assert expected in done.stdout
    assert (done.returncode == 0) is passes


@pytest.mark.release
def test_an_audit_without_a_network_passes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    done = make("audit", f"PY={quote(sys.executable)}")
    assert done.returncode == 0, done.stdout
    assert "NOT AUDITED: the service cannot be reached" in done.stdout
