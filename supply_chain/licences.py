"""Licences of all locked packages: read from their metadata, checked, and printed as a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cms.distribution import DISTRIBUTION
from supply_chain.licence_rules import ALLOWED, NAMED, REASONS, STATED
from supply_chain.lock_file import ROOT

PAGE = ROOT / "docs" / "licences.md"

HEAD = """# Licences

The service itself is under the MIT licence. This page lists what it installs and needs, with the
licence that each package states; none of them is copied into the service's own wheel. `make lock`
writes this page. A test fails when a package comes in whose licence is neither [allowed](#allowed)
nor has a [reason](#with-a-reason).
"""

USES = {
    "service": "With the service",
    "extras": "With its extras",
    "development": "For development",
}


class UnknownLicenceError(Exception):
    """A package is not installed here, or its metadata names no licence that is known."""


@dataclass(frozen=True, slots=True)
class LicensedPackage:
    name: str
    licence: str
    """As an SPDX expression; `BSD` where the metadata does not tell which."""
    use: str
    """A key of `USES`."""

    def is_allowed(self) -> bool:
        return self.name in REASONS or identifiers(self.licence) <= ALLOWED


def identifiers(licence: str) -> set[str]:
    """Return the licences that an SPDX expression names."""
    return set(re.findall(r"[^\s()]+", licence)) - {"AND", "OR"}


def licensed_packages(names: Iterable[str]) -> list[LicensedPackage]:
    """Find the licence and the use of locked packages.

    :raises UnknownLicenceError: for the first package without a known licence.
    """
    locked = sorted(set(names))
    service = _needed(Requirement(DISTRIBUTION), locked)
    extras = _needed(Requirement(f"{DISTRIBUTION}[all]"), locked)
    return [LicensedPackage(name, licence_of(name), _use(name, service, extras)) for name in locked]


def _use(name: str, service: set[str], extras: set[str]) -> str:
    if name in service:
        return "service"
    return "extras" if name in extras else "development"


def licence_of(name: str) -> str:
    """Return the licence of a package as an SPDX expression.

    :raises UnknownLicenceError: the package is not installed, or says nothing that is known.
    """
    if name in STATED:
        return STATED[name]
    package = _installed(name)
    if package is None:
        raise UnknownLicenceError(f"{name} is not installed: add its licence to STATED")
    known = _known_licences(_statements(package))
    if not known:
        raise UnknownLicenceError(f"{name} names no licence that is known: see NAMED and STATED")
    return known


def _statements(package: Distribution) -> Iterator[list[str]]:
    """Yield what metadata says of the licence, most exact first: expression, text, classifiers."""
    metadata = package.metadata
    yield metadata.get_all("License-Expression") or []
    yield metadata.get_all("License") or []
    classifiers = metadata.get_all("Classifier") or []
    yield [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: ")]


def _known_licences(statements: Iterable[list[str]]) -> str:
    for texts in statements:
        known = [NAMED.get(text, text) for text in texts if _is_known(NAMED.get(text, text))]
        if known:
            return " OR ".join(known)
    return ""


def _is_known(licence: str) -> bool:
    return identifiers(licence) <= ALLOWED | set(NAMED.values())


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _needed(requirement: Requirement, locked: list[str]) -> set[str]:
    """Return the locked packages that a requirement brings along, on any system."""
    needed: set[str] = set()
    waiting = [requirement]
    seen: set[str] = set()
    while waiting:
        one = waiting.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        needed.add(canonicalize_name(one.name))
        waiting += [more for more in _requirements(one) if canonicalize_name(more.name) in locked]
        waiting += [more for more in _requirements(one) if more.name == one.name]
    return needed


def _requirements(requirement: Requirement) -> list[Requirement]:
    package = _installed(requirement.name)
    if package is None:
        return []
    requirements = [Requirement(line) for line in package.requires or []]
    return [one for one in requirements if _may_apply(one.marker, requirement.extras)]


def _may_apply(marker: Marker | None, extras: set[str]) -> bool:
    """Tell whether a requirement applies with these extras, on this system or another."""
    if marker is None or "extra ==" not in str(marker):
        return True
    return any(marker.evaluate({"extra": extra}) for extra in extras)


def page(packages: list[LicensedPackage]) -> str:
    """Print the page of licences."""
    parts = [HEAD]
    for use, title in USES.items():
        rows = {one.name: one.licence for one in packages if one.use == use}
        parts.append(f"## {title}\n\n{_table('package', 'licence', rows)}")
    names = ", ".join(sorted(ALLOWED))
    parts.append(f"## Allowed\n\nAny package may be under these: {names}.\n")
    parts.append(f"## With a reason\n\n{_table('package', 'why it may be used', REASONS)}")
    return "\n".join(parts)


def _table(first: str, second: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {first} | {second} |", "| --- | --- |"]
    lines += [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join(lines) + "\n"


def write_page(packages: list[LicensedPackage], file: Path = PAGE) -> None:
    file.write_text(page(packages))
