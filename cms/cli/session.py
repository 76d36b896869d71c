"""What every command needs: the settings of this folder, and the database that they name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cms.config import Config, load


def settings() -> Config:
    """Return the settings of the environment and of the current folder; raises `ConfigError`."""
    return load(os.environ, folder=Path.cwd())


@contextmanager
def database(config: Config) -> Iterator[str]:
    """Yield the address of the database, for which the embedded server runs where `DATABASE_URL` is unset."""
    if config.database_url:
        yield config.database_url
        return
    from cms.store.embedded import start

    with start(config.data_dir, binaries=config.postgres_bin, announce=say) as embedded:
        yield embedded.dsn


def say(sentence: str) -> None:
    click.echo(sentence)


def expected(fault: Exception) -> bool:
    """Tell a fault of the installation or of the input from a fault of the program."""
    from cms.config import ConfigError
    from cms.errors import Refused
    from cms.store.embedded import EmbeddedError
    from cms.store.migrate import MigrationError

    return isinstance(fault, ConfigError | Refused | EmbeddedError | MigrationError)
