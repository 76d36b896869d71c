"""`cms index`: indexes over fields and over paths into JSON fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

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
    return "  ".join((index.target.collection, str(index.target), size, state))


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
