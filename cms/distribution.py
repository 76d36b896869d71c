"""The distribution: its name, version and extras for pip, and the PostgreSQL that it needs."""

from __future__ import annotations

from importlib.metadata import version

DISTRIBUTION = "postgres-headless-cms"


def installed_version() -> str:
    return version(DISTRIBUTION)


def install_command(extra: str) -> str:
    """Return the command that installs what an extra of setup.cfg needs."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


OLDEST_SERVER = 14
"""The oldest major version of PostgreSQL that has all that the migrations use."""
