"""Collections for the tests of items: made in a line, filled in a line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from datetime import timedelta
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from cms.app import create_app
from cms.auth import accounts
from cms.config import Config
from cms.config.secret_file import secret_of
from tests.client import Answer, Client
from tests.databases import SideDoor, drop_database

Json = dict[str, Any]

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Stage:
    """One application over one database, for all tests of a module."""

    admin: Client
    anonymous: Client
    dsn: str
    side_door: SideDoor
    _tables: dict[str, tuple[Table, tuple[object, ...]]] = attribute(default_factory=dict)
    """What `empty_table` has made, by definition, with its structure at that time."""

    def execute(self, sql: str) -> None:
        """Change the database behind the service's back, and have the service look at it again."""
        with self.side_door.connection() as connection:
            connection.execute(sql.encode())
        assert self.admin.post("/utils/cache/clear").status < 300

    def insert(self, table: str, row: Json) -> None:
        """Insert a row behind the service's back; the names of its columns are trusted."""
        names = ", ".join(row)
        placeholders = ", ".join(["%s"] * len(row))
        statement = f"INSERT INTO {table} ({names}) VALUES ({placeholders})"
        with self.side_door.connection() as connection:
            connection.execute(statement.encode(), list(row.values()))

    def value(self, sql: str) -> Any:
        with self.side_door.connection() as connection:
            row = connection.execute(sql.encode()).fetchone()
            return row and row[0]

    def empty_table(self, *fields: Json, sql: str = "", **meta: object) -> Table:
        """Return a collection as `table` makes it: a new one, or that of an earlier test, emptied.

        To empty one is much quicker. It then has no items, history or permissions, and its ids
        begin at 1. One whose structure or relations a test has changed is not used again.
        `sql` changes a new one behind the service's back; in it, `{name}` stands for the table.
        """
        definition = json.dumps([fields, sql, meta])
        if definition in self._tables:
            earlier, structure = self._tables[definition]
            if self._structure(earlier) == structure:
                self._empty(earlier.name)
                return earlier
        new = table(self.admin, *fields, **meta)
        if sql:
            self.execute(sql.format(name=new.name))
        new.column("id")  # the application's snapshot has the collection from here on
        self._tables[definition] = new, self._structure(new)
        return new

    def _structure(self, of: Table) -> tuple[object, ...]:
        catalogue = self.admin.app.store.snapshots.current().catalogue
        relations = [
            relation
            for relation in catalogue.relations
            if of.name in (relation.many_collection, relation.one_collection)
        ]
        return catalogue.collections.get(of.name), relations

    def _empty(self, name: str) -> None:
        with self.admin.app.store.database.transaction() as transaction:
            transaction.execute(f'TRUNCATE "{name}" RESTART IDENTITY CASCADE')
            transaction.execute("DELETE FROM system_revisions WHERE collection = $1", (name,))
            transaction.execute("DELETE FROM system_activity WHERE collection = $1", (name,))
            # Even to delete none of them has every process load the permissions again.
            where = "FROM system_permissions WHERE collection = $1"
            if transaction.execute(f"SELECT id {where}", (name,)):
                transaction.execute(f"DELETE {where}", (name,))


@contextmanager
def staged(config: Config, make_database: Callable[..., str], template: str) -> Iterator[Stage]:
    dsn = make_database(template)
    anonymous = Client(create_app(replace(config, database_url=dsn, database_pool_size=3)))
    side_door = SideDoor(dsn)
    try:
        yield Stage(anonymous.bearing(admin_token(config, dsn)), anonymous, dsn, side_door)
    finally:
        side_door.close()
        anonymous.close()
        drop_database(dsn)


@contextmanager
def template_with(
    config: Config,
    make_database: Callable[..., str],
    template: str,
    *,
    fill: Callable[[Client], None],
) -> Iterator[str]:
    """Make a template of a template, with what `fill` puts into it, and yield its name.

    A copy of it is much quicker than the requests that would make the same for each test.
    """
    with staged(config, make_database, template) as stage:
        fill(stage.admin)
        stage.admin.close()
        stage.side_door.close()
        yield str(conninfo_to_dict(stage.dsn)["dbname"])


def admin_token(config: Config, dsn: str) -> str:
    """Return an access token of the administrator; made without a login, whose
    hashing takes its time on purpose.
    """
    return accounts.admin_token(dsn, secret=secret_of(config), life=timedelta(hours=1))


@dataclass(frozen=True)
class Table:
    """A collection with its path."""

    api: Client
    name: str

    @property
    def path(self) -> str:
        return f"/items/{self.name}"

    def add(self, *items: Json) -> list[Json]:
        """Create items and return them as they were answered."""
        created: list[Json] = self.api.post(self.path, list(items)).data
        return created

    def get(self, **params: object) -> Answer:
        return self.api.get(self.path, **params)

    def read(self, query_string: str) -> Answer:
        return self.api.get(f"{self.path}?{query_string}")

    def column(self, name: str, query_string: str = "") -> list[Any]:
        """Return one field of the items that a query string finds."""
        return [item[name] for item in self.read(query_string).data]


def field(name: str, kind: str, *, special: str = "", **schema: object) -> Json:
    """The definition of a field; `special` is its marker, further keywords are of its column."""
    meta = {"meta": {"special": [special]}} if special else {}
    return {"field": name, "type": kind, "schema": schema, **meta}


def add_field(api: Client, name: str, kind: str, **members: object) -> Any:
    """Add a field to the collection `things`, and return its record."""
    return api.post("/fields/things", {"field": name, "type": kind, **members}).data


def table(api: Client, *fields: Json, **meta: object) -> Table:
    """Make a collection of a fresh name with an automatic integer `id` and these fields."""
    name = f"things_{next(_numbers)}"
    body = {"collection": name, "schema": {}, "meta": meta, "fields": list(fields)}
    answer = api.post("/collections", body)
    assert answer.status == 200, answer.text
    return Table(api, name)


def filled_things(fields: Sequence[Json], items: Sequence[Json]) -> Any:
    """Return a fixture: a collection with these fields and items, for all tests of a module.

    A module whose tests change the items has `THINGS` instead, and fills the table that
    the fixture `things` of tests/api gives each test.
    """

    @pytest.fixture(scope="module")
    def things(admin: Client) -> Table:
        made = table(admin, *fields)
        made.add(*items)
        return made

    return things


def filled_template(fill: Callable[[Client], None]) -> Any:
    """Return a fixture for the `template` of a module: the suite's, with what `fill` puts there."""

    @pytest.fixture(scope="module")
    def template(
        settings: Config, make_database: Callable[..., str], template: str
    ) -> Iterator[str]:
        with template_with(settings, make_database, template, fill=fill) as name:
            yield name

    return template


def make_collections(
    admin: Client,
    collections: Mapping[str, Sequence[Json]],
    relations: Iterable[tuple[str, str, str | None, Json]],
) -> None:
    """Make collections of these fields, and relations: collection, field, target and `meta`."""
    for name, fields in collections.items():
        body = {"collection": name, "schema": {}, "fields": fields}
        answer = admin.post("/collections", body)
        assert answer.status == 200, answer
    for collection, name, target, meta in relations:
        relation = {"collection": collection, "field": name, "related_collection": target}
        answer = admin.post("/relations", {**relation, "meta": meta})
        assert answer.status == 200, answer


def aliases_of_text(number: int) -> str:
    """Return parameters that ask for the field `text` under many names."""
    names = [f"t{n}" for n in range(number)]
    return "fields=" + ",".join(names) + "".join(f"&alias[{name}]=text" for name in names)


def at(path: str) -> str:
    """Return where `collection?query` is read: system collections have endpoints of their own."""
    return path.replace("system_", "/", 1) if path.startswith("system_") else f"/items/{path}"
