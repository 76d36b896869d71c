"""The lock file: every package that a checkout installs, one version, the hashes of its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK_FILE = ROOT / "requirements.lock"
SETUP_FILE = ROOT / "setup.cfg"

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """One entry: a package may have several, for different versions of Python."""

    name: str
    version: str
    marker: Marker | None
    hashes: int

    def applies_here(self) -> bool:
        """Tell whether this Python on this system installs it."""
        return self.marker is None or self.marker.evaluate()


def locked_packages(text: str) -> Iterator[LockedPackage]:
    """Read the entries of a lock file.

    :raises InvalidRequirement: a line is no requirement.
    """
    for line in text.replace("\\\n", " ").splitlines():
        words, _, _ = line.partition("#")
        if words.strip():
            yield _locked_package(words)


def _locked_package(words: str) -> LockedPackage:
    requirement = Requirement(_HASH.sub("", words).strip())
    (version,) = requirement.specifier
    return LockedPackage(
        name=canonicalize_name(requirement.name),
        version=version.version,
        marker=requirement.marker,
        hashes=len(_HASH.findall(words)),
    )


def required_packages(setup: str, extra: str) -> Iterator[Requirement]:
    """What setup.cfg asks for: the service's own requirements and those of an extra, with the
    extras that it includes.
    """
    configuration = ConfigParser()
    configuration.read_string(setup)
    extras: Mapping[str, str] = configuration["options.extras_require"]
    yield from _requirements(configuration["options"]["install_requires"])
    yield from _extra(extras, configuration["metadata"]["name"], extra)


def _extra(extras: Mapping[str, str], own_name: str, extra: str) -> Iterator[Requirement]:
    for requirement in _requirements(extras[extra]):
        if requirement.name == own_name:
            for included in sorted(requirement.extras):
                yield from _extra(extras, own_name, included)
        else:
            yield requirement


def _requirements(lines: str) -> list[Requirement]:
    return [Requirement(line) for line in lines.splitlines() if line]


def disagreements(setup: str, lock: str) -> list[str]:
    """Return a line for every requirement of setup.cfg that the lock file does not fulfil."""
    locked = list(locked_packages(lock))
    return [
        f"setup.cfg requires {requirement}; requirements.lock has {_versions(locked, requirement)}"
        for requirement in required_packages(setup, "dev")
        if not _fulfilled(locked, requirement)
    ]


def _entries(locked: list[LockedPackage], requirement: Requirement) -> list[LockedPackage]:
    name = canonicalize_name(requirement.name)
    return [package for package in locked if package.name == name]


def _fulfilled(locked: list[LockedPackage], requirement: Requirement) -> bool:
    entries = _entries(locked, requirement)
    return bool(entries) and all(
        requirement.specifier.contains(entry.version, prereleases=True) for entry in entries
    )


def _versions(locked: list[LockedPackage], requirement: Requirement) -> str:
    versions = [entry.version for entry in _entries(locked, requirement)]
    return " and ".join(versions) or "none"
