"""Known vulnerabilities of the locked packages, as pip-audit finds them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_FOR_ONE_ANSWER = 15
SECONDS_FOR_ALL = 600

ACCEPTED: dict[str, str] = {}
"""Vulnerabilities that do not fail the audit: their id, and the reason why they do no harm here."""

UNREACHABLE = (
    "ConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ServiceError",
    "Could not connect",
)
"""What pip-audit says when the service of vulnerabilities does not answer, or not as it should."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit: whether it passes, and lines for its reader."""

    passes: bool
    lines: tuple[str, ...]


def audit(lock_file: Path) -> Audit:
    """Ask for the known vulnerabilities of everything in the lock file.

    If the service cannot be reached the audit passes, and its lines say that nothing is known.
    """
    words = [sys.executable, "-m", "pip_audit", "--requirement", str(lock_file), "--require-hashes"]
    words += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    words += ["--timeout", str(SECONDS_FOR_ONE_ANSWER)]
    words += [word for name in ACCEPTED for word in ("--ignore-vuln", name)]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=SECONDS_FOR_ALL, check=False
        )
    except subprocess.TimeoutExpired:
        return _unreachable(f"it took more than {SECONDS_FOR_ALL} seconds")
    return result_of(done.returncode, done.stdout, done.stderr)


def result_of(exit_code: int, output: str, errors: str) -> Audit:
    """Tell what the exit code and the output of pip-audit mean.

    It exits with 0 also if the service knew no package at all, and with 1 for vulnerabilities as
    for its own errors.
    """
    if not output.strip():
        return _failed(exit_code, errors)
    packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if len(unknown) == len(packages):
        return _unreachable("it knows none of the packages")
    vulnerabilities = tuple(_vulnerabilities(packages))
    if vulnerabilities:
        return Audit(passes=False, lines=vulnerabilities)
    if exit_code:
        return Audit(passes=False, lines=(f"pip-audit failed: {errors.strip()}",))
    lines = [f"No known vulnerability in {len(packages) - len(unknown)} packages."]
    if unknown:
        lines.append(f"Not audited, since the service does not know them: {', '.join(unknown)}")
    return Audit(passes=True, lines=tuple(lines))


def _failed(exit_code: int, errors: str) -> Audit:
    if any(name in errors for name in UNREACHABLE):
        return _unreachable(errors.strip().splitlines()[-1])
    line = f"pip-audit ended with {exit_code} and no result: {errors.strip()}"
    return Audit(passes=False, lines=(line,))


def _unreachable(reason: str) -> Audit:
    lines = (
        "NOT AUDITED: the service of vulnerabilities cannot be reached from here. "
        "Nothing is known.",
        f"The reason: {reason}",
    )
    return Audit(passes=True, lines=lines)


def _vulnerabilities(packages: list[dict[str, Any]]) -> Iterator[str]:
    for package in packages:
        for vulnerability in package.get("vulns", []):
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
            yield (
                f"VULNERABLE: {package['name']} {package['version']}: {vulnerability['id']}, "
                f"fixed in {fixed}"
            )
