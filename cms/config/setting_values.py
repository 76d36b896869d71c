"""The values of settings: of the environment, of `.env`, and of files that `<NAME>_FILE` names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cms.config.providers import in_capitals
from cms.config.settings import Setting

Sources = tuple[Mapping[str, str], ...]
"""Variables by their names; the first source that has one wins."""

# NAME=value, with spaces around the sign and `export` before it allowed.
ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
# In single quotes nothing is escaped; a comment may follow either kind.
QUOTED = re.compile(r"""(?:'(?P<plain>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def sources_of(environ: Mapping[str, str], *, folder: Path, problems: list[str]) -> Sources:
    """Return the environment and `folder/.env`; what is wrong with that is added to `problems`."""
    return in_capitals(environ), in_capitals(_dotenv(folder / ".env", problems))


def read_options(
    settings: Mapping[str, Setting], sources: Sources, folder: Path, problems: list[str]
) -> dict[str, Any]:
    """Return the options that are set."""
    options: dict[str, Any] = {}
    for option, setting in settings.items():
        value = value_of(setting, sources, folder=folder, problems=problems)
        if value is not None:
            options[option] = value
    return options


def value_of(setting: Setting, sources: Sources, *, folder: Path, problems: list[str]) -> Any:
    """Return a setting from the first source that has it or its file; None if unset or wrong."""
    name = setting.name
    file_name = f"{name}_FILE"
    # One source for both forms: NAME_FILE of the environment also wins over NAME of `.env`.
    source = next((each for each in sources if name in each or file_name in each), {})
    text = source.get(name, "")
    if source.get(file_name):
        if text:
            problems.append(f"{name} and {file_name} are both set: keep one.")
            return None
        path = folder / Path(source[file_name])
        text = _read_file(path, setting_name=file_name, problems=problems)
    text_or_default = text or setting.default
    try:
        # A file can hold a zero byte, an environment cannot; libraries in C would cut the text off
        # there.
        if "\0" in text:
            raise ValueError
        return setting.kind.parse(text_or_default) if text_or_default else None
    except (ValueError, OverflowError):
        # A secret, and whatever comes from a file, is not repeated.
        is_secret = setting.mask or source.get(file_name)
        sent = "" if is_secret else f", not {text[:60]!r}"
        problems.append(f"{name} takes {setting.kind.takes}{sent}.")
        return None


def _read_file(path: Path, *, setting_name: str, problems: list[str]) -> str:
    try:
        # Editors end a file with a line break, which is no part of a password.
        return path.read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        problems.append(f"{setting_name} names a file that cannot be read: {reason_of(error)}.")
        return ""


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be read or written."""
    if isinstance(error, OSError):
        return error.strerror or "unreadable"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return str(error)


# A `.env` file: NAME=value lines, quotes, comments, `export`


def _dotenv(path: Path, problems: list[str]) -> dict[str, str]:
    """Return the variables of a file, none where it is missing.

    No problem quotes its line, which may hold a secret.
    """
    variables: dict[str, str] = {}
    try:
        for number, line in enumerate(_lines(path), start=1):
            assignment = ASSIGNMENT.fullmatch(line)
            value = _unquoted(assignment[2]) if assignment else None
            if assignment and value is not None:
                variables[assignment[1]] = value
            elif line and not line.startswith("#"):
                problems.append(f"Line {number} of {path.name} is not NAME=value.")
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {reason_of(error)}.")
    return variables


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
