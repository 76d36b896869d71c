"""Reads a `.env` file: NAME=value lines, quotes, comments, `export`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

# NAME=value, with spaces around the sign and `export` before it allowed.
ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
# In single quotes nothing is escaped; a comment may follow either kind.
QUOTED = re.compile(r"""(?:'(?P<plain>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class EnvFile(NamedTuple):
    """The variables of a `.env` file, and a sentence for each malformed line.

    No sentence quotes its line, which may hold a secret.
    """

    variables: dict[str, str]
    problems: list[str]


def read(path: Path) -> EnvFile:
    """Return the contents of a file; a missing one has no variables.

    Raises OSError and UnicodeDecodeError.
    """
    variables: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(_lines(path), start=1):
        assignment = ASSIGNMENT.fullmatch(line)
        value = _unquoted(assignment[2]) if assignment else None
        if assignment and value is not None:
            variables[assignment[1]] = value
        elif line and not line.startswith("#"):
            problems.append(f"Line {number} of {path.name} is not NAME=value.")
    return EnvFile(variables, problems)


def _lines(path: Path) -> list[str]:
    try:
        # Not splitlines(), which also splits at characters that a value may contain.
        return [line.strip() for line in path.read_text("utf-8-sig").split("\n")]
    except FileNotFoundError:
        return []


def _unquoted(text: str) -> str | None:
    """Return the value on the right side of a line, None for a quote that does not end."""
    if text[:1] not in ("'", '"'):
        # A comment begins behind a space: `pass#word` is all value.
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
    quoted = QUOTED.fullmatch(text)
    if quoted is None:
        return None
    if quoted["plain"] is not None:
        return quoted["plain"]
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), quoted["escaped"])
