"""Databases in the shape of well-known samples, as an administrator and a member with limited
rights see them. What a table has is read from `/collections`, `/fields` and `/relations`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.client import Client
from tests.members import may, member
from tests.things import Json, Stage

FOLDER = Path(__file__).parent / "samples"
SQL = {file.stem: file.read_text() for file in sorted(FOLDER.glob("*.sql"))}
_CREATED = re.compile(r'^CREATE (?:TABLE|(?:MATERIALIZED )?VIEW) ("[^"]+"|\w+)(?: \(| AS)', re.M)
COLLECTIONS = [
    (database, name.strip('"')) for database, text in SQL.items() for name in _CREATED.findall(text)
]
"""Every table and view, with its database; partitions are no collections."""

UNIQUE_TOGETHER = {("rental", "rental_date")}
"""Columns that need another value in a copy, because they are unique together with others."""

NO_ORDER = {"json", "binary"}
"""Types by which nothing is sorted or grouped."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Relation:
    """A many-to-one relation: its field, the columns of that, and the list of the other side."""

    many: str
    field: str
    columns: tuple[str, ...]
    one: str
    alias: str


@dataclass(frozen=True)
class Shape:
    """A collection: the fields that have a column, the key, and the relations of both sides."""

    name: str
    columns: Mapping[str, Json]
    key: tuple[str, ...]
    is_table: bool
    relations: tuple[Relation, ...]
    lists: tuple[Relation, ...]

    @property
    def path(self) -> str:
        return f"/items/{quote(self.name)}"

    @property
    def is_writable(self) -> bool:
        return self.is_table and bool(self.key)

    @property
    def ordered(self) -> list[str]:
        """The columns by which items can be sorted."""
        return [name for name, field in self.columns.items() if field["type"] not in NO_ORDER]

    def key_of(self, item: Json) -> Any:
        """Return the key as JSON has it."""
        values = [item[column] for column in self.key]
        return values[0] if len(values) == 1 else values

    def path_of(self, item: Json) -> str:
        """Return the path of an item."""
        texts = [quote(text_of(item[column]), safe="") for column in self.key]
        return f"{self.path}/{','.join(texts)}"

    def filter_of(self, item: Json) -> Json:
        """Return the filter that an item alone fulfils."""
        return {column: {"_eq": item[column]} for column in self.key}

    def needs_new_value(self, column: str) -> bool:
        """Tell whether two rows cannot have the same value."""
        is_unique = column in self.key or self.columns[column]["schema"]["is_unique"]
        return is_unique or (self.name, column) in UNIQUE_TOGETHER


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def new_value(value: Any) -> Any:
    """Return a value of the kind of another, that no row has; texts are encoded in paths."""
    number = next(_numbers)
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        moment = datetime(2031, 1, 1, microsecond=123456, tzinfo=UTC) + timedelta(minutes=number)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, str):
        return f"{number:x},%"
    return 9000 + number


@dataclass(frozen=True)
class Caller:
    """A client, the column of each collection that it does not see, and the rule for its rows."""

    client: Client
    hidden: Mapping[str, str | None]
    rules: Mapping[str, Json]

    def columns(self, shape: Shape) -> list[str]:
        return [name for name in shape.columns if name != self.hidden.get(shape.name)]


@dataclass(frozen=True)
class Sample:
    """One of the databases behind a service, and its callers by their names."""

    stage: Stage
    shapes: Mapping[str, Shape]
    callers: Mapping[str, Caller]
    rows_sql: str

    def fill(self) -> None:
        """Give all tables the rows that they have at first."""
        names = ", ".join(f'"{shape.name}"' for shape in self.shapes.values() if shape.is_table)
        with self.stage.side_door.connection() as connection:
            connection.execute(f"TRUNCATE {names} RESTART IDENTITY; {self.rows_sql}".encode())

    def rows(self, caller: Caller, shape: Shape) -> list[Json]:
        """Return the rows and columns that a caller is to see, as the administrator reads them."""
        columns = caller.columns(shape)
        query = {
            "filter": caller.rules.get(shape.name, {}),
            "fields": columns,
            "sort": shape.ordered,
            "limit": -1,
        }
        rows: list[Json] = self.stage.admin.search(shape.path, query).data
        return rows

    def copy_of(self, caller: Caller, shape: Shape, row: Json) -> Json:
        """Return a new item like a row: keys and unique columns have new values, or new related
        items where they are relations.
        """
        item = {}
        related = {each.field: self.shapes[each.one] for each in shape.relations}
        for column in caller.columns(shape):
            if not shape.needs_new_value(column):
                item[column] = row[column]
            elif column in related:
                one = related[column]
                item[column] = self.copy_of(caller, one, self.rows(caller, one)[0])
            elif not shape.columns[column]["schema"]["has_auto_increment"]:
                item[column] = new_value(row[column])
        return item


def load(stage: Stage, database: str) -> Sample:
    """Make a database of a sample, and give each foreign key a list on its other side."""
    text = SQL[database]
    start_of_rows = text.index("INSERT INTO")
    stage.execute(text[:start_of_rows])
    _make_lists(stage.admin)
    shapes = _read_shapes(stage)
    filled = Sample(stage, shapes, {}, text[start_of_rows:])
    filled.fill()
    admin = Caller(stage.admin, {}, {})
    limited = _limited_caller(filled, admin)
    return Sample(stage, shapes, {"admin": admin, "member": limited}, text[start_of_rows:])


def _make_lists(api: Client) -> None:
    for record in _relation_records(api):
        many = record["collection"]
        path = f"/relations/{quote(many)}/{record['field']}"
        answer = api.patch(path, {"meta": {"one_field": f"{many}_by_{record['field']}"}})
        assert answer.status == 200, answer


def _relation_records(api: Client) -> list[Json]:
    return [
        record
        for record in api.get("/relations").data
        if not record["collection"].startswith("system_")
    ]


def _read_shapes(stage: Stage) -> dict[str, Shape]:
    api = stage.admin
    relations = [_relation(api, record) for record in _relation_records(api)]
    fields: dict[str, dict[str, Json]] = defaultdict(dict)
    for field in api.get("/fields").data:
        if field["schema"]:
            fields[field["collection"]][field["field"]] = field
    tables = set(stage.value(f"SELECT array_agg(relname::text) FROM pg_class {_TABLES}"))
    names = [record["collection"] for record in api.get("/collections").data]
    return {
        name: Shape(
            name,
            columns=fields[name],
            key=_key(stage, name, fields[name]),
            is_table=name in tables,
            relations=tuple(each for each in relations if each.many == name),
            lists=tuple(each for each in relations if each.one == name),
        )
        for name in names
        if not name.startswith("system_")
    }


_TABLES = "WHERE relkind IN ('r', 'p')"


def _relation(api: Client, record: Json) -> Relation:
    many = record["collection"]
    field = record["field"]
    described = api.get(f"/fields/{quote(many)}/{field}").data
    columns = (field,) if described["schema"] else tuple(described["meta"]["columns"])
    return Relation(many, field, columns, record["related_collection"], record["meta"]["one_field"])


def _key(stage: Stage, name: str, fields: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the columns of the primary key in its order, or what `/fields` marks in a view."""
    ordered = stage.value(
        "SELECT array_agg(attname::text ORDER BY position) FROM pg_index, "
        "unnest(indkey::smallint[]) WITH ORDINALITY AS keys (number, position), pg_attribute "
        f"WHERE indisprimary AND indrelid = '\"{name}\"'::regclass "
        "AND attrelid = indrelid AND attnum = number"
    )
    marked = [column for column, field in fields.items() if field["schema"]["is_primary_key"]]
    return tuple(ordered or marked)


def _limited_caller(sample: Sample, admin: Caller) -> Caller:
    """Make a member that sees neither the last row of a collection nor one of its columns."""
    hidden = {name: _hidden_column(shape) for name, shape in sample.shapes.items()}
    rules = {}
    permissions = []
    for name, shape in sample.shapes.items():
        column = (*shape.key, *shape.ordered)[0]
        last = sample.rows(admin, shape)[-1][column]
        rules[name] = {column: {"_neq": last}}
        fields = [each for each in shape.columns if each != hidden[name]]
        fields += [each.alias for each in shape.lists]
        fields += [each.field for each in shape.relations if each.field not in shape.columns]
        for action in ("read", "create", "update", "delete"):
            permissions.append(may(name, *fields, action=action, permissions=rules[name]))
    return Caller(member(sample.stage, *permissions), hidden, rules)


def _hidden_column(shape: Shape) -> str | None:
    """Return the last column that an item can do without."""
    related = {column for each in shape.relations for column in each.columns}
    hideable = [
        name
        for name, field in shape.columns.items()
        if name not in related | set(shape.key) and field["schema"]["is_nullable"]
    ]
    return hideable[-1] if len(hideable) > 1 else None
