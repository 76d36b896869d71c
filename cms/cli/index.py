"""`cms index`: indexes over fields and over paths into JSON fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import click

from cms.cli.session import existing_database, say
from cms.config import Config
from cms.database.connections import Database, standalone_transaction
from cms.schema.model import Catalogue
from cms.store.snapshot import load_snapshot
from cms.structure.value_indexes import (
    ValueIndex,
    drop_indexes,
    index_target,
    make_index,
    value_indexes,
)


@dataclass(frozen=True, slots=True)
class IndexCommand:
    """What `cms index` was called with."""

    collection: str | None
    path: str | None
    drop: bool


def run_index_command(config: Config, command: IndexCommand) -> None:
    """List, make or drop indexes; raises `click.UsageError` where a name is missing."""
    collection = command.collection
    path = command.path
    if collection is None or path is None:
        if command.drop:
            raise click.UsageError("--drop needs a collection and a field or path.")
        list_indexes(config, collection)
    elif command.drop:
        drop_value_index(config, collection=collection, path=path)
    else:
        make_value_index(config, collection=collection, path=path)


def list_indexes(config: Config, collection: str | None) -> None:
    with _database(config) as (database, catalogue):
        if collection is not None and collection not in catalogue.collections:
            raise click.ClickException(f'There is no collection "{collection}".')
        with database.transaction() as transaction:
            indexes = value_indexes(transaction, collection)
    for index in indexes:
        say(_line(index))
    if not indexes:
        say("There is no index.")


def _line(index: ValueIndex) -> str:
    size = f"{max(index.size // 1024, 1)} kB"
    state = f"used {index.scans} times" if index.is_valid else "not complete: drop it"
    return "  ".join((index.target.collection, str(index.target), index.name, size, state))


def make_value_index(config: Config, *, collection: str, path: str) -> None:
    with _database(config) as (database, catalogue):
        target = index_target(catalogue, collection, path)
        if make_index(database, catalogue, target):
            say(f"{collection} has an index of {target}.")
        else:
            say(f"{collection} has an index of {target} already.")


def drop_value_index(config: Config, *, collection: str, path: str) -> None:
    with _database(config) as (database, catalogue):
        target = index_target(catalogue, collection, path)
        names = drop_indexes(database, target)
    if not names:
        raise click.ClickException(f"{collection} has no index of {target} that could be dropped.")
    say(f"Dropped the index of {target} of {collection}.")


@contextmanager
def _database(config: Config) -> Iterator[tuple[Database, Catalogue]]:
    with existing_database(config) as dsn:
        database = Database(replace(config, database_url=dsn, database_pool_size=2))
        try:
            with standalone_transaction(dsn) as transaction:
                catalogue = load_snapshot(transaction).catalogue
            yield database, catalogue
        finally:
            database.close()
