"""Strategies: tables as other programs make them, and values for their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.random_tables.kinds import Comparison, Kind, quoted_literal, whole_numbers

MAX_KEY_COLUMNS = 3
MAX_OTHER_COLUMNS = 4
MAX_ROWS = 4

NUMBER = "n"
"""A further column, by which the test names rows whatever their keys are."""

INTEGER = Kind("integer", st.nothing())
WHOLE_NUMBER = Kind("integer", whole_numbers(32))

# Value `None` of a row is SQL's NULL.
Value = str | None
Row = dict[str, Value]

NAMES = ["a", "Größe", "order", "two words", 'Say "x"', "%s", "UPPER", "$1", "it's", "-x", "ключ"]


@dataclass(frozen=True)
class Column:
    """A column: its definition in SQL, and some values for it."""

    name: str
    kind: Kind = field(repr=False)
    definition: str
    values: tuple[str, ...]
    is_nullable: bool = True
    is_written: bool = True
    """Whether values for it can be written; else the database computes them."""
    varies: bool = False
    """Whether the database gives it another value each time."""
    trigger: str = ""
    """A statement of PL/pgSQL by which a trigger changes new rows."""

    @property
    def sql_name(self) -> str:
        return quoted_name(self.name)


@dataclass(frozen=True)
class RandomTable:
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns of the primary key, in its order."""
    rows: tuple[Row, ...]

    @property
    def written(self) -> list[Column]:
        """The columns whose values can be written."""
        return [column for column in self.columns if column.is_written]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def sql(self, name: str) -> str:
        """Return the statements that make the table, and with it one of the columns' values.

        That has the name with `_values`, and a row for each number of a value: a client reads
        there in which form it may send them.
        """
        columns = ", ".join(f"{column.sql_name} {column.definition}" for column in self.columns)
        key = ", ".join(map(quoted_name, self.key))
        statements = [
            f"CREATE TABLE {name} ({NUMBER} integer, {columns}, PRIMARY KEY ({key}))",
            f"CREATE TABLE {name}_values ({NUMBER} integer PRIMARY KEY, "
            + ", ".join(f"{column.sql_name} {column.kind.type}" for column in self.written)
            + ")",
            *self._values(f"{name}_values"),
        ]
        changes = "".join(column.trigger for column in self.columns)
        if changes:
            statements += [
                f"CREATE FUNCTION {name}_change() RETURNS trigger LANGUAGE plpgsql AS "
                f"{quoted_literal(f'BEGIN {changes} RETURN NEW; END')}",
                f"CREATE TRIGGER change BEFORE INSERT OR UPDATE ON {name} "
                f"FOR EACH ROW EXECUTE FUNCTION {name}_change()",
            ]
        return "; ".join(statements)

    def _values(self, name: str) -> list[str]:
        number_of_rows = max([len(column.values) for column in self.written], default=0)
        return [
            insert(
                name,
                {
                    column.name: column.values[number]
                    for column in self.written
                    if number < len(column.values)
                },
                number,
            )
            for number in range(number_of_rows)
        ]


def insert(name: str, row: Row, number: int) -> str:
    """Return the statement that inserts a row of this number."""
    names = ", ".join([NUMBER, *map(quoted_name, row)])
    values = ", ".join([str(number), *map(literal, row.values())])
    return f"INSERT INTO {name} ({names}) VALUES ({values})"


def drop(name: str) -> str:
    return f"DROP TABLE {name}, {name}_values; DROP FUNCTION IF EXISTS {name}_change"


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(value: Value) -> str:
    return "NULL" if value is None else quoted_literal(value)


@st.composite
def tables(draw: st.DrawFn, kinds: Sequence[Kind], version: int) -> RandomTable:
    key_count = draw(st.integers(1, MAX_KEY_COLUMNS))
    keys = [kind for kind in [*kinds, WHOLE_NUMBER] if kind.is_key]
    count = key_count + draw(st.integers(1, MAX_OTHER_COLUMNS))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=count, max_size=count, unique=True))
    key_columns = [draw(key_columns_of(name, keys)) for name in names[:key_count]]
    others = [draw(plain_columns_of(name, kinds)) for name in names[key_count:]]
    copied = draw(st.sampled_from([*others, None, None]))
    computed = [] if copied is None else [draw(computed_columns_of(copied, version))]
    counted = draw(st.sampled_from([[], [], [COUNTER], [CLOCK]]))
    columns = tuple(draw(st.permutations([*key_columns, *others, *computed, *counted])))
    rows = draw(st.lists(rows_of(columns), min_size=1, max_size=MAX_ROWS))
    key = tuple(draw(st.permutations([column.name for column in key_columns])))
    return RandomTable(columns, key, tuple(rows))


@st.composite
def key_columns_of(draw: st.DrawFn, name: str, kinds: Sequence[Kind]) -> Column:
    kind = draw(st.sampled_from(kinds))
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(counting_columns(name)))
    values = draw(values_of(kind, 3, MAX_ROWS))
    definition = kind.type
    trigger = ""
    if kind.has_constants and draw(st.integers(0, 4)) == 0:
        definition += f" DEFAULT {quoted_literal(values[0])}"
    if kind.changes and draw(st.integers(0, 4)) == 0:
        trigger = changed(name, draw(st.sampled_from(kind.changes)))
    return Column(name, kind, definition, values, is_nullable=False, trigger=trigger)


@st.composite
def plain_columns_of(draw: st.DrawFn, name: str, kinds: Sequence[Kind]) -> Column:
    kind = draw(st.sampled_from(kinds))
    values = draw(values_of(kind, 1, 3))
    definition = kind.type
    trigger = ""
    is_nullable = True
    roles = ["", "trigger"] + ["default", "filled", "check"] * kind.has_constants
    match draw(st.sampled_from(roles)):
        case "default":
            definition += f" DEFAULT {quoted_literal(values[0])}"
        case "filled":
            definition += f" NOT NULL DEFAULT {quoted_literal(values[-1])}"
            is_nullable = False
        case "check":
            definition += f" CHECK (NOT {equals(name, kind, values[-1])})"
        case "trigger":
            trigger = draw(triggers_of(name, kind, values[0]))
    return Column(name, kind, definition, values, is_nullable=is_nullable, trigger=trigger)


def equals(name: str, kind: Kind, value: str) -> str:
    constant = f"CAST({quoted_literal(value)} AS {kind.type})"
    return f"{kind.compared(quoted_name(name))} = {kind.compared(constant)}"


def triggers_of(name: str, kind: Kind, value: str) -> st.SearchStrategy[str]:
    column = f"NEW.{quoted_name(name)}"
    kept = f"IF TG_OP = 'UPDATE' THEN {column} := OLD.{quoted_name(name)}; END IF;"
    filled = f"{column} := coalesce({column}, {quoted_literal(value)});"
    return st.sampled_from([kept, filled, *(changed(name, change) for change in kind.changes)])


def changed(name: str, change: str) -> str:
    column = f"NEW.{quoted_name(name)}"
    return f"{column} := {change.format(column)};"


def values_of(kind: Kind, min_size: int, max_size: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(kind.texts, min_size=min_size, max_size=max_size).map(tuple)


@st.composite
def computed_columns_of(draw: st.DrawFn, source: Column, version: int) -> Column:
    """Draw a column that is computed from another one."""
    known = Kind("boolean", st.nothing(), Comparison.EQUALITY)
    expressions = [
        (source.kind, source.sql_name, "STORED"),
        (known, f"{source.sql_name} IS NULL", "STORED"),
    ]
    if version >= 18:
        # Virtual columns know no types but those of PostgreSQL itself.
        expressions.append((INTEGER, f"{NUMBER} / 2", "VIRTUAL"))
    kind, expression, storage = draw(st.sampled_from(expressions))
    definition = f"{kind.type} GENERATED ALWAYS AS ({expression}) {storage}"
    return Column("computed", kind, definition, (), is_written=False)


def counting_columns(name: str) -> list[Column]:
    definitions = ["serial", "integer GENERATED ALWAYS AS IDENTITY"]
    return [
        Column(name, INTEGER, definition, (), is_nullable=False, is_written=False, varies=True)
        for definition in definitions
    ]


COUNTER = Column(
    "writes",
    INTEGER,
    "integer",
    (),
    is_written=False,
    trigger="NEW.writes := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE OLD.writes + 1 END;",
)
CLOCK = Column(
    "changed",
    Kind("timestamptz", st.nothing()),
    "timestamptz",
    (),
    is_written=False,
    varies=True,
    trigger="NEW.changed := clock_timestamp();",
)


@st.composite
def rows_of(draw: st.DrawFn, columns: Sequence[Column]) -> Row:
    """Draw the values of a row; columns may be missing."""
    row: Row = {}
    for column in columns:
        if not column.is_written:
            continue
        if column.is_nullable and draw(st.integers(0, 4)) == 0:
            row[column.name] = None
        elif "DEFAULT" not in column.definition or draw(st.booleans()):
            row[column.name] = draw(st.sampled_from(column.values))
    return row
