"""The systems and versions of Python that the lock file serves, as uv finds them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name

PYTHONS = ("3.11", "3.12", "3.13", "3.14")

_OLDEST_MACOS = "13.0"
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Platform:
    """A system under uv's name; `built` are the packages that have an sdist but no wheel for it."""

    name: str
    title: str
    built: frozenset[str] = frozenset()


PLATFORMS = (
    Platform("x86_64-manylinux_2_28", "Linux on x86_64 with glibc 2.28"),
    Platform("aarch64-manylinux_2_28", "Linux on aarch64 with glibc 2.28"),
    Platform("aarch64-apple-darwin", "macOS 13 on arm64"),
    Platform(
        "x86_64-apple-darwin",
        "macOS 13 on x86_64",
        frozenset({"argon2-cffi-bindings", "cryptography", "lazy-object-proxy"}),
    ),
)


def unserved(lock: str) -> Iterator[str]:
    """Yield a line, with the reason, for every platform and Python that the lock file fails."""
    for platform, python in product(PLATFORMS, PYTHONS):
        reason = refusal(lock, platform, python)
        if reason:
            yield f"{platform.title}, Python {python}: {reason}"


def refusal(
    lock: str, platform: Platform, python: str, *, options: Sequence[str] = ()
) -> str | None:
    """Return why the locked packages cannot be installed, None where they can be.

    Nothing is downloaded, so that no hash is compared. `options` are further words for uv.
    """
    wheels = [*options, "--only-binary", ":all:"]
    reason = _refusal(_without(lock, platform.built), platform, python, wheels)
    if reason is None and platform.built:
        # With all of them: those that are built have an sdist.
        reason = _refusal(lock, platform, python, options)
    return reason


def _without(lock: str, names: frozenset[str]) -> str:
    """Return a lock file without the entries of some packages."""
    lines = lock.replace("\\\n", " ").splitlines()
    return "\n".join(line for line in lines if _name_of(line) not in names)


def _name_of(line: str) -> str:
    name, _, _ = line.partition("==")
    return canonicalize_name(name.partition("[")[0].strip())


def _refusal(lock: str, platform: Platform, python: str, options: Sequence[str]) -> str | None:
    with TemporaryDirectory() as folder:
        lock_file = Path(folder) / "requirements.lock"
        lock_file.write_text(f"{lock}\n")
        words = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--require-hashes"]
        words += ["--no-deps", "--python-platform", platform.name, "--python-version", python]
        words += ["--target", f"{folder}/installed", "--requirement", str(lock_file), *options]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": _OLDEST_MACOS},
        )
    if done.returncode:
        return " ".join(done.stderr.split("\n\n")[0].split())
    return None
