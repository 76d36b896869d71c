"""`python -m supply_chain COMMAND`: what `make` and CI ask about the project's dependencies."""

from __future__ import annotations

import sys

from supply_chain.audit import audit
from supply_chain.licences import UnknownLicenceError, licensed_packages, write_page
from supply_chain.lock_file import LOCK_FILE, SETUP_FILE, disagreements, locked_packages
from supply_chain.platforms import unserved


def check_lock() -> int:
    """Compare the lock file with setup.cfg."""
    lines = disagreements(SETUP_FILE.read_text(), LOCK_FILE.read_text())
    for line in lines:
        print(line, file=sys.stderr)
    if lines:
        print("`make lock` renews the lock file.", file=sys.stderr)
    return len(lines) and 1


def write_licences() -> int:
    """Write the page of licences, and name those that may not be used."""
    try:
        packages = licensed_packages(one.name for one in locked_packages(LOCK_FILE.read_text()))
    except UnknownLicenceError as error:
        print(error, file=sys.stderr)
        return 1
    write_page(packages)
    refused = [one for one in packages if not one.is_allowed()]
    for one in refused:
        print(f"{one.name} is under {one.licence}, which is not allowed.", file=sys.stderr)
    return len(refused) and 1


def check_vulnerabilities() -> int:
    """Print what is known of vulnerabilities in the locked packages."""
    result = audit(LOCK_FILE)
    print("\n".join(result.lines), flush=True)
    return 0 if result.passes else 1


def check_platforms() -> int:
    """Print which systems and versions of Python the lock file does not serve."""
    lines = list(unserved(LOCK_FILE.read_text()))
    for line in lines:
        print(line, file=sys.stderr)
    # It takes minutes, after which silence would leave doubts.
    if not lines:
        print("The lock file serves every system and version of Python.")
    return len(lines) and 1


COMMANDS = {
    "check": check_lock,
    "licences": write_licences,
    "audit": check_vulnerabilities,
    "platforms": check_platforms,
}


def main(words: list[str]) -> int:
    """Run the command that the words name; the result is the exit code."""
    if len(words) != 1 or words[0] not in COMMANDS:
        print(f"usage: python -m supply_chain {'|'.join(COMMANDS)}", file=sys.stderr)
        return 2
    return COMMANDS[words[0]]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
