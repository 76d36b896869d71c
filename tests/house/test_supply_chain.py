"""The lock file fits setup.cfg, licences are listed and allowed, audits report what they know."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

from supply_chain.__main__ import main
from supply_chain.audit import audit, result_of
from supply_chain.licence_rules import REASONS, STATED
from supply_chain.licences import PAGE, LicensedPackage, licensed_packages, page
from supply_chain.lock_file import LOCK_FILE, SETUP_FILE, disagreements, locked_packages
from supply_chain.platforms import PLATFORMS, Platform, refusal

LOCK = LOCK_FILE.read_text()
NAMES = {one.name for one in locked_packages(LOCK)}
NO_SERVICE = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}

SMALL_SETUP = """
[metadata]
name = cms
[options]
install_requires =
    falcon>=4,<5
[options.extras_require]
redis =
    limits[redis]>=5,<6
all =
    cms[redis]
dev =
    cms[all]
    pytest>=8
"""
SMALL_LOCK = "falcon==4.1 \\\n    --hash=sha256:" + "0" * 64 + "\nlimits==5.0\npytest==8.3\n"


def test_the_lock_file_has_what_setup_asks_for() -> None:
    lines = disagreements(SETUP_FILE.read_text(), LOCK)
    assert lines == [], "`make lock` renews the lock file"


def test_everything_in_the_lock_file_has_hashes() -> None:
    assert [one.name for one in locked_packages(LOCK) if not one.hashes] == []


def test_make_installs_nothing_whose_hash_is_not_locked() -> None:
    words = ["make", "--dry-run", "--always-make", ".venv/.installed"]
    done = subprocess.run(words, cwd=LOCK_FILE.parent, capture_output=True, text=True, check=True)
    lines = done.stdout.replace("\\\n", " ").splitlines()
    locked, service = [line for line in lines if "pip install" in line]
    assert "--require-hashes --requirement requirements.lock" in locked
    # The service itself, which neither brings nor is built with anything else.
    assert "--no-deps" in service
    assert "--no-build-isolation" in service


def test_the_lock_file_names_no_address() -> None:
    assert "://" not in LOCK
    assert "--index" not in LOCK


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("falcon==4.1", "setup.cfg requires falcon<5,>=4; requirements.lock has none"),
        ("limits==5.0", "setup.cfg requires limits[redis]<6,>=5; requirements.lock has none"),
        ("pytest==8.3", "setup.cfg requires pytest>=8; requirements.lock has none"),
    ],
)
def test_a_requirement_without_its_lock_is_reported(line: str, problem: str) -> None:
    assert disagreements(SMALL_SETUP, SMALL_LOCK) == []
    assert disagreements(SMALL_SETUP, SMALL_LOCK.replace(line, "other==1")) == [problem]


def test_a_locked_version_that_setup_does_not_want_is_reported() -> None:
    problems = ["setup.cfg requires falcon<5,>=4; requirements.lock has 5.0"]
    assert disagreements(SMALL_SETUP, SMALL_LOCK.replace("falcon==4.1", "falcon==5.0")) == problems


def test_the_page_of_licences_is_that_of_the_locked_packages() -> None:
    assert PAGE.read_text() == page(licensed_packages(NAMES)), "`make lock` writes the page"


def test_every_licence_is_allowed_or_has_a_reason() -> None:
    refused = [one for one in licensed_packages(NAMES) if not one.is_allowed()]
    assert refused == []


def test_every_stated_licence_and_every_reason_is_of_a_locked_package() -> None:
    assert (set(REASONS) | set(STATED)) - NAMES == set()


@pytest.mark.parametrize("name", sorted(STATED))
def test_a_licence_is_stated_only_for_what_is_not_installed_everywhere(name: str) -> None:
    entries = [one for one in locked_packages(LOCK) if one.name == name]
    if any(one.marker is None for one in entries):
        with pytest.raises(PackageNotFoundError):
            distribution(name)


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("MIT OR Apache-2.0", True),
        ("Apache-2.0 AND (MIT OR BSD-3-Clause)", True),
        ("GPL-3.0-only", False),
        ("MIT AND AGPL-3.0-only", False),
        ("LGPL-3.0-only", False),
    ],
)
def test_other_licences_need_a_reason(licence: str, *, allowed: bool) -> None:
    assert LicensedPackage("something", licence, "service").is_allowed() is allowed
    assert LicensedPackage("psycopg", licence, "service").is_allowed()


def outcome(*packages: Mapping[str, object]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


SOUND = {"name": "falcon", "version": "4.1", "vulns": []}
UNKNOWN = {"name": "limits", "skip_reason": "Dependency not found"}
VULNERABLE = {
    "name": "jinja2",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": [], "description": "bad"}],
}


def test_an_audit_without_findings_passes() -> None:
    result = result_of(0, outcome(SOUND), "No known vulnerabilities found")
    assert result.passes
    assert result.lines == ("No known vulnerability in 1 packages.",)


def test_an_audit_names_what_the_service_does_not_know() -> None:
    result = result_of(0, outcome(SOUND, UNKNOWN), "")
    assert result.passes
    assert result.lines[1].endswith("does not know them: limits")


def test_an_audit_with_a_vulnerability_fails() -> None:
    result = result_of(1, outcome(SOUND, VULNERABLE, UNKNOWN), "Found 1 known vulnerability")
    assert not result.passes
    assert result.lines == ("VULNERABLE: jinja2 2.0: PYSEC-1, fixed in 2.1",)


def test_an_audit_of_which_the_service_knows_nothing_has_audited_nothing() -> None:
    result = result_of(0, outcome(UNKNOWN), "No known vulnerabilities found")
    assert result.passes
    assert result.lines[0].startswith("NOT AUDITED")


def test_an_audit_that_breaks_for_another_reason_fails() -> None:
    result = result_of(1, "", "ERROR:pip_audit._cli:requirement file is invalid")
    assert not result.passes


@pytest.mark.release
def test_an_audit_without_a_network_passes_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NO_SERVICE.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.lower(), value)
    result = audit(LOCK_FILE)
    assert result.passes
    assert result.lines[0].startswith("NOT AUDITED")


@pytest.mark.release
def test_an_audit_of_a_broken_lock_file_fails(tmp_path: Path) -> None:
    broken = tmp_path / "broken.lock"
    broken.write_text("falcon==4.1\n")
    assert not audit(broken).passes


def wheel(folder: Path, name: str, tags: str) -> str:
    """Make a wheel without any code, and return its line of a lock file."""
    file = folder / f"{name}-1.0-{tags}.whl"
    about = f"{name}-1.0.dist-info"
    with ZipFile(file, "w") as archive:
        archive.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        archive.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nTag: {tags}\n")
        archive.writestr(f"{about}/RECORD", "")
    return f"{name}==1.0 --hash=sha256:{sha256(file.read_bytes()).hexdigest()}\n"


@pytest.mark.release
def test_a_platform_without_a_wheel_is_reported(tmp_path: Path) -> None:
    everywhere = wheel(tmp_path, "pure", "py3-none-any")
    linux_only = wheel(tmp_path, "native", "cp311-abi3-manylinux_2_28_x86_64")
    local = ("--no-index", "--offline", "--find-links", str(tmp_path))
    linux = Platform("x86_64-manylinux_2_28", "Linux")
    mac = Platform("aarch64-apple-darwin", "macOS")
    lock = everywhere + linux_only
    assert refusal(lock, linux, "3.13", options=local) is None
    assert "native" in str(refusal(lock, mac, "3.13", options=local))
    assert refusal(everywhere, mac, "3.13", options=local) is None
    # Its name alone is not enough: it must have an sdist.
    built = replace(mac, built=frozenset({"native"}))
    assert "native" in str(refusal(lock, built, "3.13", options=local))


def test_what_a_platform_builds_is_locked() -> None:
    locked = {one.name for one in locked_packages(LOCK_FILE.read_text())}
    assert {name for platform in PLATFORMS for name in platform.built} <= locked


@pytest.mark.parametrize("lines", [[], ["Linux, Python 3.11: there is no wheel"]])
def test_the_command_prints_whether_all_platforms_are_served(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("supply_chain.__main__.unserved", lambda _lock: iter(lines))
    assert main(["platforms"]) == bool(lines)
    output, errors = capsys.readouterr()
    assert ("serves every system" in output) == (not lines)
    assert errors.splitlines() == lines


def test_the_command_prints_its_usage() -> None:
    words = [sys.executable, "-m", "supply_chain", "nothing"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "check|licences|audit" in done.stderr
