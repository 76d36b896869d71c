"""The distribution: the name under which pip knows the service, with its version and extras."""

from __future__ import annotations

from importlib.metadata import version

DISTRIBUTION = "postgres-headless-cms"


def installed_version() -> str:
    return version(DISTRIBUTION)


def install_command(extra: str) -> str:
    """Return the command that installs what an extra of setup.cfg needs."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
