"""`cms doctor`: checks everything that an installation needs, and says how to fix it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from cms.cli.flow_findings import flow_findings
from cms.cli.provider_findings import provider_findings, role_findings
from cms.cli.session import (
    NoDatabase,
    current_config,
    is_expected,
    misspelt_settings,
    running_database,
    sentence_of,
)
from cms.cli.structure_findings import (
    OK,
    WARNING,
    WRONG,
    Finding,
    structure_findings,
)
from cms.config import Config, ConfigError
from cms.database.connections import max_streams, standalone_transaction
from cms.database.migrate import MigrationError, pending
from cms.database.session_setup import (
    ServerInfo,
    different_settings,
    examine_server,
    session_settings,
)
from cms.distribution import OLDEST_SERVER
from cms.errors import Refused
from cms.flows.run import OperationType
from cms.jobs.housekeeping import queue_state
from cms.mail.render import template_names
from cms.structure.index_builds import INDEX_BUILDS

COLOURS = {OK: "green", WARNING: "yellow", WRONG: "red"}

LOW_DISK_BYTES = 1024**3
MIN_DISK_BYTES = 100 * 1024**2
QUEUE_CONNECTIONS = 5  # of a worker, beside those of its jobs
SPARE_CONNECTIONS = 5  # for the command line, migrations, and people with psql
EXTENSIONS = {
    "pg_trgm": "search in texts is slow on large tables without it",
    "unaccent": "search tells accents apart without it",
    "postgis": "geometry fields need it",
}
AFTER_INSTALL = {
    "pg_trgm": ", then set meta.searchable of the collections again",
    "unaccent": ", then `cms migrate`",
}


def diagnose(operations: Mapping[str, OperationType], *, asks_providers: bool) -> int:
    """Print a line for each finding, and return the exit code: 1 when something is wrong."""
    exit_code = 0
    for finding in findings(operations, asks_providers=asks_providers):
        level = click.style(finding.level.ljust(7), fg=COLOURS[finding.level])
        click.echo(f"{level}  {finding.text}")
        if finding.level == WRONG:
            exit_code = 1
    return exit_code


def findings(
    operations: Mapping[str, OperationType], *, asks_providers: bool = False
) -> Iterator[Finding]:
    """Yield the findings about the installation in the current folder, simple checks first."""
    try:
        config = current_config()
    except ConfigError as error:
        yield from (Finding(WRONG, problem) for problem in error.problems)
        return
    yield Finding(OK, "settings: every value can be used")
    for sentence in misspelt_settings(config, os.environ, folder=Path.cwd()):
        yield Finding(WARNING, f"settings: {sentence}")
    yield _secret(config)
    yield from _disk(config)
    try:
        with running_database(config) as dsn:
            yield from _database(dsn, config, operations)
            if asks_providers:
                yield from role_findings(config, dsn)
    except NoDatabase as error:
        yield Finding(WARNING, f"database: {error}")
    except Exception as error:
        if not is_expected(error):
            raise
        # One more line of the report, and not its end: earlier findings still count.
        yield Finding(WRONG, f"database: {sentence_of(error)}")
    if asks_providers:
        yield from provider_findings(config)


def _secret(config: Config) -> Finding:
    if config.secret:
        return Finding(OK, "SECRET: set")
    path = config.data_dir / "secret"
    # Other machines can use a database of one's own, but not the secret in this folder.
    if config.database_url:
        return Finding(
            WARNING,
            f"SECRET: kept in {path}; set it when more than one machine serves this database",
        )
    return Finding(OK, f"SECRET: kept in {path}")


def _disk(config: Config) -> Iterator[Finding]:
    folder = _nearest_existing(config.data_dir)
    if not folder.is_dir():
        yield Finding(WRONG, f"DATA_DIR: {folder} is not a folder; name another one")
        return
    if os.access(folder, os.W_OK | os.X_OK):
        yield Finding(OK, f"DATA_DIR: {config.data_dir} can be written")
    else:
        yield Finding(
            WRONG,
            f"DATA_DIR: {folder} cannot be written by this account; change its rights or DATA_DIR",
        )
    free = shutil.disk_usage(folder).free
    text = f"disk: {free / 1024**3:.1f} GB are free at {folder}"
    # PostgreSQL stops when it cannot write its log of transactions.
    if free < MIN_DISK_BYTES:
        yield Finding(WRONG, f"{text}; make room before the database stops")
    elif free < LOW_DISK_BYTES:
        yield Finding(WARNING, f"{text}; make room soon")
    else:
        yield Finding(OK, text)


def _nearest_existing(path: Path) -> Path:
    """Return the path, or the folder in which it would be made."""
    # The root, or the current folder, always exists.
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _database(
    dsn: str, config: Config, operations: Mapping[str, OperationType]
) -> Iterator[Finding]:
    # It raises where nothing answers: all other checks need the server.
    server = examine_server(dsn)
    yield _version(server)
    yield _encoding(server)
    yield _session(dsn, config)
    migrations = _migrations(dsn)
    yield migrations
    # The statements of this version need its tables.
    if migrations.level == OK:
        yield _queue_finding(dsn)
        yield from structure_findings(dsn)
        yield from flow_findings(dsn, operations, mail_templates=template_names(config.data_dir))
    yield from (_extension(name, server) for name in EXTENSIONS)
    yield _connections(server, config)
    if config.database_read_url:
        yield _replica(config.database_read_url)


def _version(server: ServerInfo) -> Finding:
    major = server.version // 10_000
    if major < OLDEST_SERVER:
        return Finding(
            WRONG, f"database: PostgreSQL {major} is too old; {OLDEST_SERVER} or newer is needed"
        )
    return Finding(OK, f"database: PostgreSQL {major} answers")


def _encoding(server: ServerInfo) -> Finding:
    if server.encoding == "UTF8":
        return Finding(OK, "encoding: UTF8")
    return Finding(
        WRONG,
        f"encoding: {server.encoding}; make a database with ENCODING 'UTF8' TEMPLATE template0",
    )


def _session(dsn: str, config: Config) -> Finding:
    # A pooler may leave out the options with which the service begins each session.
    settings = session_settings(config.db_statement_timeout, read_only=False)
    different = different_settings(dsn, settings)
    if not different:
        return Finding(OK, "session: it has the settings of the service")
    return Finding(
        WRONG,
        f"session: a pooler leaves out {', '.join(different)}; "
        "set them for the role, as docs/deployment.md says",
    )


def _migrations(dsn: str) -> Finding:
    try:
        pending_migrations = pending(dsn)
    except MigrationError as error:
        return Finding(WRONG, f"migrations: {error}")
    if pending_migrations:
        return Finding(
            WARNING,
            f"migrations: {len(pending_migrations)} to apply; "
            "run `cms migrate`, or `cms serve`, which does it",
        )
    return Finding(OK, "migrations: all applied")


def _queue_finding(dsn: str) -> Finding:
    with standalone_transaction(dsn) as transaction:
        queue = queue_state(transaction)
    failed = ""
    if queue.failed:
        failed = f", {queue.failed} failed in the last days; the log tells why"
    # Jobs for later need no worker yet.
    if queue.workers or not queue.due:
        return Finding(OK, f"jobs: {queue.due} wait, {queue.workers} workers{failed}")
    return Finding(
        WARNING,
        f"jobs: {queue.due} wait and no worker runs; start `cms worker`, or `cms serve`{failed}",
    )


def _extension(name: str, server: ServerInfo) -> Finding:
    # The extension came after the tables, whose indexes are of a function that does not use it.
    if name == "unaccent" and name in server.installed and server.is_accent_sensitive:
        return Finding(
            WARNING,
            "extension unaccent: younger than the tables, so that search tells accents apart; "
            "run `cms migrate`",
        )
    if name in server.installed:
        return Finding(OK, f"extension {name}: installed")
    if name in server.available:
        command = f"CREATE EXTENSION {name}{AFTER_INSTALL.get(name, '')}"
        return Finding(WARNING, f"extension {name}: {EXTENSIONS[name]}; run {command}")
    # PostGIS is large, and few installations need it; the other two come with every server.
    level = OK if name == "postgis" else WARNING
    return Finding(level, f"extension {name}: the server does not have it; {EXTENSIONS[name]}")


def _connections(server: ServerInfo, config: Config) -> Finding:
    # Reads and exports use connections of their own, on the replica where there is one.
    pools = 1 if config.database_read_url else 2
    streams = 0 if config.database_read_url else max_streams(config.database_pool_size)
    # Each process has pools of its own.
    web_connections = config.web_concurrency * (config.database_pool_size * pools + streams)
    max_jobs = config.worker_concurrency + config.flows_concurrency + INDEX_BUILDS
    # Two more than jobs, as `cms worker` sets its pool.
    worker_connections = (max_jobs + 2) * pools + QUEUE_CONNECTIONS
    needed = web_connections + worker_connections + SPARE_CONNECTIONS
    text = f"connections: up to {needed} of {server.connections}"
    if needed <= server.connections:
        return Finding(OK, text)
    return Finding(
        WARNING, f"{text}; lower DATABASE_POOL_SIZE or WEB_CONCURRENCY, or raise max_connections"
    )


def _replica(dsn: str) -> Finding:
    try:
        examine_server(dsn)
    except Refused as error:
        return Finding(WRONG, f"DATABASE_READ_URL: {error}")
    return Finding(OK, "DATABASE_READ_URL: the replica answers")
