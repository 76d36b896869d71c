"""The structure of a database as SQL, which PostgreSQL's own program pg_dump writes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from cms.backup import BackupError
from cms.database.bulk import address_without_password

# Leaves out objects of the server that are no data: roles, tablespaces, replication.
_LEFT_OUT = (
    "--no-owner",
    "--no-privileges",
    "--no-tablespaces",
    "--no-security-labels",
    "--no-publications",
    "--no-subscriptions",
)


_LOCK_WAIT = "3s"
"""How long pg_dump waits for the lock of a table.

The caller's transaction holds all locks already. A transaction that queues in between waits for the
caller's, which waits for pg_dump; PostgreSQL cannot detect this circle.
"""


# Lines as these are told by where they are: at the very beginning, behind remarks and settings.
# Further on they are a part of something else, as of a function or a comment.
_BEGINNING = r"""\A ( (?: (?: SET [ ] | SELECT [ ] pg_catalog\.set_config | -- ) .* \n | \n )*? )"""
_RESTRICTION = re.compile(rf"{_BEGINNING} \\restrict [ ] (\S+) \n", re.VERBOSE)
_TRANSACTION_TIMEOUT = re.compile(
    rf"{_BEGINNING} SET [ ] transaction_timeout [ ] = [ ] 0 ; \n", re.VERBOSE
)
_SCHEMA_ITSELF = re.compile(
    rf"""
    {_BEGINNING}
    CREATE [ ] SCHEMA [ ] (?: "(?:[^"]|"")*" | \S+ ) ; \n
    (?: (?: -- .* \n | \n )* COMMENT [ ] ON [ ] SCHEMA [ ] .* [ ] IS [ ] '(?:[^']|'')*' ; \n )?
    """,
    re.VERBOSE,
)


class StructureChanges(Exception):
    """Somebody waits to change the structure, and pg_dump would wait for them without an end."""


def dump_structure(program: Path, dsn: str, *, schema: str, snapshot: str, section: str) -> str:
    """Return the statements that make a schema's objects.

    `section` is `pre-data` for what rows need, or `post-data` for keys, indexes and triggers.
    `snapshot` is that of an open transaction. Raises `BackupError` with pg_dump's message, and
    `StructureChanges`.
    """
    address, password = address_without_password(dsn)
    quoted_schema = schema.replace('"', '""')
    command = [
        str(program),
        "--schema-only",
        f"--section={section}",
        f'--schema="{quoted_schema}"',
        f"--snapshot={snapshot}",
        "--encoding=UTF8",
        "--no-password",
        f"--lock-wait-timeout={_LOCK_WAIT}",
        *_LEFT_OUT,
        f"--dbname={address}",
    ]
    # Everybody can read a command line, but not an environment.
    environment = {**os.environ, "LC_ALL": "C"}
    if password is not None:
        environment["PGPASSWORD"] = password
    result = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if result.returncode:
        reason = result.stderr.decode(errors="replace").strip()
        # The server's sentence may be in any language, the statement that pg_dump quotes is not.
        if re.search(r"^LOCK TABLE|: LOCK TABLE ", reason, re.MULTILINE):
            raise StructureChanges
        raise BackupError(f"pg_dump cannot read the structure. {reason}")
    return _plain_statements(result.stdout.decode())


def _plain_statements(script: str) -> str:
    """Return a script without the commands of psql, and without those for the schema itself."""
    # Newer versions begin with `\\restrict WORD` and end with `\\unrestrict WORD`.
    if match := _RESTRICTION.match(script):
        script = match[1] + script[match.end() :]
        before, _, after = script.rpartition(f"\\unrestrict {match[2]}\n")
        script = before + after
    # The schema is there already, and may belong to somebody else.
    return _SCHEMA_ITSELF.sub(r"\1", script)


def for_server(script: str, version: int) -> str:
    """Return a script as a server of this version takes it; the number is 150004 for 15.4."""
    if version >= 170000:
        return script
    # A setting of version 17, which a newer pg_dump sets for every server.
    return _TRANSACTION_TIMEOUT.sub(r"\1", script)
