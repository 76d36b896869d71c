"""Tables of any columns, as other programs make them: what was read can be sent back and changes
nothing, what was written is read back as the database holds it, every key that a list shows names
its row, and filters with the values of answers find their rows.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cms import jsontext
from tests.client import Answer
from tests.examples import example_count
from tests.model.test_reads import SEED, cases_for_each
from tests.random_tables.kinds import KINDS, NOT_OF_COLUMNS, TYPES, Comparison, Kind
from tests.random_tables.tables import (
    NUMBER,
    Column,
    RandomTable,
    Row,
    drop,
    insert,
    literal,
    quoted_name,
    rows_of,
    tables,
)
from tests.things import Stage

pytestmark = pytest.mark.slow

GROUPS = 12
TABLES_OF_GROUP = 8
QUICK_GROUPS = 3

tables_of_group = settings(cases_for_each, max_examples=example_count(TABLES_OF_GROUP))

_numbers = itertools.count(1)
_row_numbers = itertools.count(1000)

Item = dict[str, Any]
Stored = dict[int, dict[str, object]]
"""The rows as PostgreSQL shows them, by their numbers; values are texts, or those of JSON."""


@pytest.fixture(scope="module")
def connection(stage: Stage) -> Iterator[psycopg.Connection]:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(TYPES.encode())
        yield connection


# In groups, so that every kind has its turn: hypothesis does not draw all of many alike.
@pytest.mark.quick(QUICK_GROUPS)
@pytest.mark.parametrize("group", range(GROUPS))
def test_rows_of_any_table(stage: Stage, connection: psycopg.Connection, group: int) -> None:
    version = connection.info.server_version // 10_000
    kinds = Random(SEED).sample(KINDS, len(KINDS))[group::GROUPS]

    @tables_of_group
    @given(table=tables(known_kinds(connection, kinds), version), data=st.data())
    def use(table: RandomTable, data: st.DataObject) -> None:
        name = f"any_{next(_numbers)}"
        note(f"CMS_MODEL_SEED={SEED}")
        note(table.sql(name))
        stage.execute(table.sql(name))
        try:
            use_table(TableInUse(stage, connection, name, table), data)
        finally:
            connection.execute(drop(name).encode())

    use()


def test_every_type_of_postgresql_is_among_the_kinds(connection: psycopg.Connection) -> None:
    types = (
        "SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace "
        "AND typtype IN ('b', 'r', 'm') AND typcategory <> 'A'"
    )
    names = {name for (name,) in connection.execute(types)}
    by_name = "SELECT typname FROM pg_type WHERE oid = to_regtype(%s)"
    tried = {name for kind in KINDS for (name,) in connection.execute(by_name, (kind.type,))}
    assert names - tried - set(NOT_OF_COLUMNS) == set()


def known_kinds(connection: psycopg.Connection, kinds: Sequence[Kind]) -> list[Kind]:
    """Return the kinds that the server knows: some are newer, and XML needs a library."""
    version = connection.info.server_version // 10_000
    try:
        connection.execute("SELECT '<a/>'::xml")
        has_xml = True
    except psycopg.errors.FeatureNotSupported:
        has_xml = False
    return [kind for kind in kinds if kind.since <= version and (has_xml or kind.type != "xml")]


def use_table(used: TableInUse, data: st.DataObject) -> None:
    for number, row in enumerate(used.table.rows):
        used.insert(row, number)
    used.check_sent_back()
    used.check_filters(data)
    used.check_writes(data)
    used.check_keys()


@dataclass
class TableInUse:
    """One table in use, by the service and past it."""

    stage: Stage
    connection: psycopg.Connection
    name: str
    table: RandomTable
    forms: dict[str, list[Any]] = field(init=False)
    """The values of each column as answers show them."""

    def __post_init__(self) -> None:
        values = self.read(f"/items/{self.name}_values", sort=NUMBER)
        self.forms = {
            column.name: [item[column.name] for item in values][: len(column.values)]
            for column in self.table.written
        }

    # Past the service

    def insert(self, row: Row, number: int) -> None:
        """Insert a row, if the database takes it."""
        try:
            self.connection.execute(insert(self.name, row, number).encode())
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            note(f"{row}: {error}")

    def stored(self) -> Stored:
        columns = ", ".join(f"{column.sql_name}::text" for column in self.table.columns)
        rows = self.connection.execute(f"SELECT {NUMBER}, {columns} FROM {self.name}".encode())
        return {
            number: {
                column.name: comparable(column, value)
                for column, value in zip(self.table.columns, values, strict=True)
            }
            for number, *values in rows
        }

    def revision_count(self) -> object:
        return self.stage.value(
            f"SELECT count(*) FROM system_revisions WHERE collection = '{self.name}'"
        )

    def after(self, statement: str) -> Stored | None:
        """Return the rows as they would be after a statement; None where the database refuses."""
        try:
            with self.connection.transaction(force_rollback=True):
                self.connection.execute(statement.encode())
                return self.stored()
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            note(f"{statement}: {error}")
            return None

    # By the service

    @property
    def path(self) -> str:
        return f"/items/{self.name}"

    def send(self, method: str, path: str, body: object) -> Answer:
        raw = jsontext.dumps(body)
        note(f"{method} {path} {raw.decode()}")
        return self.stage.admin.send(method, path, raw=raw)

    def read(self, path: str, **params: object) -> Any:
        return data_of(self.stage.admin.get(path, limit=-1, **params))

    def items(self) -> list[Item]:
        items: list[Item] = self.read(self.path, sort=NUMBER)
        return items

    def key_of(self, item: Item) -> Any:
        values = [item[name] for name in self.table.key]
        return values if len(values) > 1 else values[0]

    def path_of(self, item: Item) -> str:
        """Return the path of an item, by its key in the form of an answer."""
        texts = [as_text(item[name]) for name in self.table.key]
        if len(texts) > 1:
            texts = [text.replace("%", "%25").replace(",", "%2C") for text in texts]
        return f"{self.path}/{quote(','.join(texts), safe='')}"

    def has_path(self, item: Item) -> bool:
        """Tell whether a path can name an item: an empty text is none."""
        return self.path_of(item) != f"{self.path}/"

    # What holds of any table

    def check_sent_back(self) -> None:
        items = self.items()
        assert [item[NUMBER] for item in items] == sorted(self.stored())
        for item in items:
            if self.has_path(item):
                assert self.read(self.path_of(item)) == item
                self.check_unchanged("PATCH", self.path_of(item), item, [item])
            self.check_unchanged("PATCH", self.path, self.items()[:1], items[:1])
        self.check_unchanged("PATCH", self.path, self.items(), items)

    def check_unchanged(self, method: str, path: str, body: object, items: list[Item]) -> None:
        """Write what was read: nothing changes but what the table's triggers change by themselves.

        That is what they do at any update, of the same values too.
        """
        numbers = ", ".join(str(item[NUMBER]) for item in items) or "NULL"
        before = self.stored()
        revision_count = self.revision_count()
        expected = self.after(
            f"UPDATE {self.name} SET {NUMBER} = {NUMBER} WHERE {NUMBER} IN ({numbers})"
        )
        answer = self.send(method, path, body)
        if expected is None:
            assert answer.status == 400, answer
            return
        assert answer.status == 200, answer
        assert self.comparable(self.stored()) == self.comparable(expected)
        if self.stored() == before:
            assert self.revision_count() == revision_count

    def check_filters(self, data: st.DataObject) -> None:
        items = self.items()
        if not items:
            return
        for column in self.table.columns:
            item = data.draw(st.sampled_from(items))
            if item[column.name] is None:
                assert item[NUMBER] in self.matching(column, "_null", True)
            else:
                self.check_filters_of(column, item)

    def check_filters_of(self, column: Column, item: Item) -> None:
        form = item[column.name]
        number = item[NUMBER]
        comparison = column.kind.comparison
        for operator, operand, sql in OPERATORS[comparison]:
            expected = self.numbers_where(column, number, sql)
            actual = self.matching(column, operator, [form] if operand == "[]" else form)
            assert actual == expected, (column.name, operator, form)
        if isinstance(form, str):
            for operator in PARTIAL:
                numbers = self.matching(column, operator, form, may_refuse=True)
                assert numbers is None or number in numbers, (column.name, operator, form)

    def matching(
        self, column: Column, operator: str, operand: object, *, may_refuse: bool = False
    ) -> Any:
        filter_ = jsontext.dumps({column.name: {operator: operand}}).decode()
        note(filter_)
        answer = self.stage.admin.get(self.path, filter=filter_, fields=NUMBER, sort=NUMBER)
        if may_refuse and answer.status == 400:
            return None
        return [item[NUMBER] for item in data_of(answer)]

    def numbers_where(self, column: Column, number: int, sql: str) -> list[int]:
        left, right = (column.kind.compared(f"{row}.{column.sql_name}") for row in ("t", "o"))
        condition = sql.format(left, right)
        rows = self.connection.execute(
            f"SELECT t.{NUMBER} FROM {self.name} AS t, {self.name} AS o "
            f"WHERE o.{NUMBER} = {number} AND {condition} ORDER BY 1".encode()
        )
        return [row_number for (row_number,) in rows]

    def check_writes(self, data: st.DataObject) -> None:
        some_rows = st.lists(rows_of(self.table.columns), min_size=1, max_size=3)
        for _ in range(2):
            self.check_created(data.draw(some_rows))
        for item in self.items():
            row = data.draw(rows_of(self.table.columns))
            # The key that the item has is no change, at which triggers would run.
            row = {name: row[name] for name in row if not self.is_key_of(item, name, row[name])}
            if row:
                self.check_changed(item, row)

    def is_key_of(self, item: Item, name: str, value: str | None) -> bool:
        """Tell whether a value is what an item has in a column of its key already."""
        return name in self.table.key and value is not None and self.form(name, value) == item[name]

    def check_created(self, rows: list[Row]) -> None:
        rows_by_number = {next(_row_numbers): row for row in rows}
        statements = [insert(self.name, row, number) for number, row in rows_by_number.items()]
        expected = self.after("; ".join(statements))
        items = [{NUMBER: number, **self.sent(row)} for number, row in rows_by_number.items()]
        answer = self.send("POST", self.path, items if len(items) > 1 else items[0])
        self.check_written(answer, expected, list(rows_by_number))

    def check_changed(self, item: Item, row: Row) -> None:
        number = item[NUMBER]
        values = ", ".join(f"{quoted_name(name)} = {literal(row[name])}" for name in row)
        expected = self.after(f"UPDATE {self.name} SET {values} WHERE {NUMBER} = {number}")
        if self.has_path(item):
            answer = self.send("PATCH", self.path_of(item), self.sent(row))
        else:
            body = {"keys": [self.key_of(item)], "data": self.sent(row)}
            answer = self.send("PATCH", self.path, body)
        self.check_written(answer, expected, [number])

    def sent(self, row: Row) -> Item:
        """Return the values of a row as a client sends them: in the form of an answer."""
        return {
            name: None if value is None else self.form(name, value) for name, value in row.items()
        }

    def form(self, name: str, value: str) -> Any:
        return self.forms[name][self.table.column(name).values.index(value)]

    def check_written(self, answer: Answer, expected: Stored | None, numbers: list[int]) -> None:
        """Compare the rows after a write with those after the same statement in SQL."""
        if expected is None:
            assert answer.status == 400, answer
            return
        written = as_list(data_of(answer))
        assert [item[NUMBER] for item in written] == numbers
        assert self.comparable(self.stored()) == self.comparable(expected)
        assert [item for item in self.items() if item[NUMBER] in numbers] == written
        for item in written:
            if self.has_path(item):
                assert self.read(self.path_of(item)) == item

    def comparable(self, stored: Stored) -> Stored:
        """Return rows without what has another value each time."""
        varying = {column.name for column in self.table.columns if column.varies}
        return {
            number: {name: value for name, value in row.items() if name not in varying}
            for number, row in stored.items()
        }

    def check_keys(self) -> None:
        """Update and delete each item by its key, which leaves all others as they are."""
        for turn, item in enumerate(self.items()):
            number = item[NUMBER]
            expected = self.after(
                f"UPDATE {self.name} SET {NUMBER} = {-number - 1} WHERE {NUMBER} = {number}"
            )
            body = {"keys": [self.key_of(item)], "data": {NUMBER: -number - 1}}
            answer = self.send("PATCH", self.path, body)
            assert answer.status == (400 if expected is None else 200), answer
            if expected is not None:
                assert self.comparable(self.stored()) == self.comparable(expected)
                (item,) = data_of(answer)
            others = {key: row for key, row in self.stored().items() if key != item[NUMBER]}
            if self.has_path(item) and turn % 2:
                answer = self.stage.admin.delete(self.path_of(item))
            else:
                answer = self.send("DELETE", self.path, [self.key_of(item)])
            assert answer.status == 204, answer
            assert self.stored() == others


_EQUAL = [
    ("_eq", "", "{0} = {1}"),
    ("_in", "[]", "{0} = {1}"),
    ("_neq", "", "{0} <> {1}"),
    ("_nin", "[]", "{0} <> {1}"),
]
OPERATORS: Mapping[Comparison, Sequence[tuple[str, str, str]]] = {
    Comparison.NONE: [],
    Comparison.TEXT: _EQUAL,
    Comparison.EQUALITY: _EQUAL,
    Comparison.ORDER: [
        *_EQUAL,
        ("_gt", "", "{0} > {1}"),
        ("_gte", "", "{0} >= {1}"),
        ("_lt", "", "{0} < {1}"),
        ("_lte", "", "{0} <= {1}"),
    ],
}
"""Operators by how they compare, with the form of the operand and the condition in SQL."""

PARTIAL = ["_contains", "_icontains", "_starts_with", "_istarts_with", "_ends_with", "_iends_with"]


def comparable(column: Column, text: str | None) -> object:
    """Return the text of a stored value so that equal values are equal."""
    if text is None:
        return None
    if column.kind.is_json:
        return json.loads(text, parse_float=Decimal)
    # Clients do not tell a negative zero from another one.
    return "0" if text == "-0" else text


def as_text(value: object) -> str:
    return value if isinstance(value, str) else jsontext.dumps(value).decode()


def as_list(data: Any) -> list[Any]:
    return data if isinstance(data, list) else [data]


def data_of(answer: Answer) -> Any:
    """Return what an answer holds, numbers with all their digits."""
    assert answer.status == 200, answer
    return json.loads(answer.content, parse_float=Decimal, parse_int=whole_number)["data"]


def whole_number(digits: str) -> int | Decimal:
    # Longer numbers are Decimals, which `jsontext.dumps` prints.
    return int(digits) if len(digits) < 18 else Decimal(digits)
