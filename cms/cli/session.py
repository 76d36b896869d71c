"""Common to the commands: the settings of this folder, and the database that they name."""

from __future__ import annotations

import difflib
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from cms.config import Config, load
from cms.config.setting_values import sources_of
from cms.config.settings import SETTINGS
from cms.logs import logs_json

log = logging.getLogger("cms.cli")


class NoDatabase(Exception):
    """A command that needs existing data found no database."""


class DatabaseLost(Exception):
    """The embedded server ended by itself and cannot be started again."""


def current_config() -> Config:
    """Return the settings of the environment and the current folder; raises `ConfigError`."""
    return load(os.environ, folder=Path.cwd())


def warn_of_names(config: Config) -> None:
    """Print a line for each variable that looks like a misspelt setting."""
    for sentence in misspelt_settings(config, os.environ, folder=Path.cwd()):
        announce(f"Warning: {sentence}")


@contextmanager
def database(config: Config) -> Iterator[str]:
    """Yield the address of the database; the embedded server runs meanwhile, where it is used."""
    if config.database_url:
        yield config.database_url
        return
    # Imported only here: with a database of one's own the embedded one is not needed.
    from cms.embedded.lifetime import start

    with start(config.data_dir, binaries=config.postgres_bin, announce=announce) as embedded:
        yield embedded.dsn


@contextmanager
def running_database(config: Config) -> Iterator[str]:
    """Yield the address of the database that a service uses.

    Starts no server; raises `NoDatabase` when none runs.
    """
    if config.database_url:
        yield config.database_url
        return
    from cms.embedded.lifetime import running_dsn

    # Data that does not exist is another problem than a server that does not run.
    require_database(config)
    address = running_dsn(config.data_dir)
    if address is None:
        raise NoDatabase(
            f"The server of the database in {config.data_dir} is not running, "
            "so there is no more to tell. Start the service, and look again while it runs."
        )
    yield address


@contextmanager
def existing_database(config: Config) -> Iterator[str]:
    """Yield the address of a database that exists; raises `NoDatabase` rather than make one."""
    require_database(config)
    with database(config) as dsn:
        yield dsn


def require_database(config: Config) -> None:
    """Raise `NoDatabase` where the embedded server would make a new database."""
    from cms.embedded.data_folder import has_data

    if not config.database_url and not has_data(config.data_dir):
        raise NoDatabase(
            f"There is no database in {config.data_dir} yet. "
            "Start the service first: `cms serve`, or `make run`."
        )


@contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGTERM and the end of the terminal end the block as Ctrl-C does.

    By themselves they would end the process at once, and leave half-done work.
    """
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in previous.items():
        # Under nohup the terminal does not count.
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def say(sentence: str) -> None:
    """Print the result of a command."""
    click.echo(sentence)


def report_ready(sentence: str) -> None:
    """Print that a process is ready; where its log is JSON, it is a line of that."""
    if logs_json():
        log.info(sentence)
    else:
        say(f"{sentence} (Ctrl-C stops it).")


def announce(sentence: str) -> None:
    """Print a message for people, apart from the output that scripts read.

    The command goes on when nobody can read it, as when the terminal is closed. Where the log of
    the process is JSON, it is a line of that.
    """
    if logs_json():
        log.info(sentence)
        return
    with suppress(OSError):
        click.echo(sentence, err=True)


def is_expected(error: Exception) -> bool:
    """Tell whether an error is of the installation or the input, not of the program."""
    # Only here: `cms --help` must not wait for psycopg.
    from cms.backup import BackupError
    from cms.config import ConfigError
    from cms.database.bulk import BulkError
    from cms.database.error_mapping import Stale
    from cms.database.migrate import MigrationError
    from cms.embedded import EmbeddedError
    from cms.errors import Refused

    own_errors = BackupError | BulkError | ConfigError | EmbeddedError | MigrationError
    return isinstance(error, own_errors | Refused | NoDatabase | DatabaseLost | Stale)


def sentence_of(error: Exception) -> str:
    """Return the sentence to print for an expected error."""
    from cms.database.error_mapping import Stale
    from cms.store.refusals import refusal_of_stale

    return str(refusal_of_stale(error) if isinstance(error, Stale) else error)


_SIMILARITY = 0.9
"""Of 1: one wrong letter of twelve, or two that changed places."""


def misspelt_settings(config: Config, environ: Mapping[str, str], *, folder: Path) -> Iterator[str]:
    """Yield a sentence for each variable of the environment and of `folder/.env`."""
    names = [setting.name for setting in SETTINGS]
    known = {*names, *(f"{name}_FILE" for name in names), *config.flows_env}
    # Those of locations and providers have checks of their own.
    prefixes = [f"STORAGE_{location.name.upper()}_" for location in config.locations]
    prefixes += [f"AUTH_{provider.name.upper()}_" for provider in config.providers]
    for variable in sorted(set[str]().union(*sources_of(environ, folder=folder, problems=[]))):
        if variable in known or variable.startswith(tuple(prefixes)):
            continue
        bare_name = variable.removesuffix("_FILE")
        similar = difflib.get_close_matches(bare_name, names, n=1, cutoff=_SIMILARITY)
        if similar:
            yield f"{variable} is no setting and has no effect: {similar[0]}?"
