"""What is checked before anything is restored: that an archive is complete, and that it fits the
installation into which it is restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cms.backup import BackupError, DamagedArchive, Watcher
from cms.backup.archive_format import Member, unpacked
from cms.backup.archives import Archive
from cms.backup.manifest import HEAD, LISTS, Entry, Head, read_entries, read_head
from cms.database.bulk import TableInSchema, count_rows, has_rows
from cms.database.connections import Transaction, single_values
from cms.database.migrate import read_migrations
from cms.database.statements import sql_folder, statement
from cms.files.storage import Storages

# Tables that migrations, `cms bootstrap`, `cms serve` and a first login fill by themselves.
_OWN_TABLES = frozenset(
    {
        "system_migrations",
        "system_queue",
        "system_version",
        "system_settings",
        "system_sessions",
        "system_idempotency",
        "system_flow_schedules",
        "system_json_paths",
    }
)
_OWN_PREFIXES = ("system_activity", "system_revisions", "procrastinate_")
_SINGLE_ROWS = frozenset({"system_users", "system_roles"})
"""A bootstrapped service has one row in each: the first administrator with its role."""


def check_archive(head: Head, transaction: Transaction, storages: Storages) -> None:
    """Raise `BackupError` for an archive that this installation cannot take."""
    ((schema, server, _has_service),) = transaction.execute(statement("describe_database"))
    if schema != head.schema:
        raise BackupError(
            f"The archive is of the schema {head.schema}, and this database's is {schema}. "
            "Name it in DATABASE_SCHEMA: docs/deployment.md tells how."
        )
    if server // 10_000 < head.server // 10_000:
        raise BackupError(
            f"The archive is of PostgreSQL {head.server // 10_000}; this server is older "
            f"({server // 10_000}). Restore it into {head.server // 10_000} or newer."
        )
    check_migrations(head)
    absent = [name for name in head.storages if name not in storages]
    if absent:
        raise BackupError(
            f"The archive has files in storage locations that are not set up here: "
            f"{', '.join(absent)}. Name them in STORAGE_LOCATIONS."
        )


def check_migrations(head: Head) -> None:
    """Raise `BackupError` for an archive of a version that this one does not know."""
    own_digests: dict[str, str] = {}
    for migration in read_migrations(sql_folder() / "migrations"):
        own_digests[migration.name] = migration.sha256
    for name, sha256 in head.migrations.items():
        if own_digests.get(name) != sha256:
            raise BackupError(
                f"The archive was made with the migration {name}, which this version does not "
                "have. Restore it with the version that made it, or a newer one."
            )


def missing_extensions(head: Head, transaction: Transaction) -> list[str]:
    """Return the extensions of the archive that this server does not have."""
    available = single_values(transaction.execute(statement("list_available_extensions")))
    return [name for name in head.extensions if name not in available]


def content_of(transaction: Transaction) -> str | None:
    """Name something in an installation that a new one does not have; None for nothing."""
    ((schema, _server, _has_service),) = transaction.execute(statement("describe_database"))
    for name, _size, _columns in transaction.execute(statement("list_backup_tables")):
        table = TableInSchema(schema, name)
        if not name.startswith(("system_", "procrastinate_")):
            return f"the table {name}"
        if name in _SINGLE_ROWS and count_rows(transaction, table) > 1:
            return f"more than one row in {name}"
        is_own = name in _OWN_TABLES | _SINGLE_ROWS or name.startswith(_OWN_PREFIXES)
        if not is_own and has_rows(transaction, table):
            return f"rows in {name}"
    for (name,) in transaction.execute(statement("list_own_objects")):
        return str(name)
    return None


# Whether an archive is complete: it is read, and nothing is changed

MAX_DESCRIPTION_BYTES = 2**26
"""More than the structure of ten thousand collections takes."""


def head_of(archive: Archive) -> Head:
    """Return the head of an archive, whatever follows it."""
    for member in unpacked(archive.read()):
        return _head(member)
    raise DamagedArchive("it is empty")


def verified(archive: Archive, watcher: Watcher) -> int:
    """Read an archive to its end, and return how many files have no content in it.

    Raises `DamagedArchive` if a byte is missing or has changed.
    """
    missing = 0
    watcher.begin("checking", archive.size())
    for member in unpacked(watched(archive.read(), watcher)):
        if member.name.startswith(f"{LISTS}/"):
            missing += _report_missing(read_entries(content_bytes(member)), watcher)
    return missing


@contextmanager
def believing_head(archive: Archive, watcher: Watcher) -> Iterator[None]:
    """Let refusals pass that come of the head of an archive only if the archive is whole.

    Its checksum is at its end: until it is read, a changed byte may be all that is wrong.
    """
    try:
        yield
    except BackupError:
        watcher.begin("checking", archive.size())
        for _member in unpacked(watched(archive.read(), watcher)):
            continue
        raise


def content_bytes(member: Member) -> bytes:
    """Return the whole content of a member that describes others, and so is small."""
    if member.size > MAX_DESCRIPTION_BYTES:
        raise DamagedArchive(f"{member.name} is too large")
    return b"".join(member.pieces)


def watched(chunks: Iterable[bytes], watcher: Watcher) -> Iterator[bytes]:
    for chunk in chunks:
        watcher.advance(len(chunk))
        yield chunk


def _head(member: Member) -> Head:
    if member.name != HEAD:
        raise DamagedArchive(f"it does not begin with {HEAD}")
    return read_head(content_bytes(member))


def _report_missing(entries: list[Entry], watcher: Watcher) -> int:
    missing = [entry for entry in entries if entry.sha256 is None]
    for entry in missing:
        watcher.report(
            f"The archive lacks the content of the file {entry.key} ({entry.name}), which "
            "was not there when it was backed up."
        )
    return len(missing)
