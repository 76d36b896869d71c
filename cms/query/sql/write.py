"""The printer of writes: arrays of values in, one statement for any number of rows and for their history.

Every statement has the form

    WITH [v AS (the counters),] [old AS (the rows as they were, locked in the order of their keys),]
    rows AS (INSERT, UPDATE or DELETE … RETURNING key, history, answer),
    activities AS (INSERT …), revisions AS (INSERT …)
    SELECT … FROM rows

Values travel as one array for each column, so that two rows and ten thousand are the same short text, prepared once.
Ids of the history are drawn where the rows are written: joining it to them afterwards would take a hash or worse.
Parameters are symbolic (`ArgumentSlots`), so that a statement is printed once for all writes of its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cms.fragment import EMPTY, Fragment, commas, concat, fill, join, name, param, text
from cms.query.language.ast import Slot
from cms.query.plan.bindings import Placeholder
from cms.query.sql.history import (
    ACTIVITY,
    HistoryEntry,
    delta_of,
    history_columns,
    history_steps,
    tracked_columns,
)
from cms.schema.model import Collection, Field, Version
from cms.schema.types import Family

Columns = Sequence[Field]


@dataclass(frozen=True, slots=True)
class ArgumentSlots:
    """Where a statement finds its values among the literals: the author's four, then an array for each column.

    With `single` there is a plain value for each column instead, which is what PostgreSQL is fastest with.
    `history_action` is what the history calls it, where that is not the action itself.
    """

    first_slot: int = 0
    single: bool = False
    history_action: str | None = None

    def author(self) -> Fragment:
        """Print user, address, user agent and origin."""
        return commas(
            param(_slot(self.first_slot + n), cast)
            for n, cast in enumerate(("uuid", "text", "text", "text"))
        )

    def column(self, place: int, element: str) -> Fragment:
        return param(
            _slot(self.first_slot + AUTHOR_SLOTS + place),
            element if self.single else f"{element}[]",
        )

    def column_array(self, place: int, element: str) -> Fragment:
        """Print the values of a column as an array, however many there are."""
        column = self.column(place, element)
        return fill("ARRAY[{0}]", column) if self.single else column


AUTHOR_SLOTS = 4


@dataclass(frozen=True, slots=True)
class SingleStatement:
    """For a statement that stands alone: the counters that it holds under, the columns of its answer, and rules.

    Rules are conditions on a row (t0). `before` are whether the caller sees it and whether it may write it, as it was;
    `after` is what the row must fulfil then, or nothing is written; `shown` whether the caller may read that. None is
    no rule. What is answered has `rows.found`, and behind it what `shown` and the first of `before` came to.
    """

    version: Version
    outputs: tuple[Fragment, ...] = ()
    before: tuple[Fragment, Fragment] | None = None
    after: Fragment | None = None
    shown: Fragment | None = None


def insert(
    collection: Collection,
    columns: Columns,
    arguments: ArgumentSlots,
    *,
    single_statement: SingleStatement | None = None,
) -> Fragment:
    """Print the insertion of rows in their order; its rows are key and revision, or a direct statement's answer."""
    placed = auto_sort_field(collection)
    filled = [placed] if placed and placed not in columns else []
    names = [name(found.name) for found in (*columns, *filled)]
    cells = [
        *(_cell(found, f"r.c{place}") for place, found in enumerate(columns)),
        *(_next_position(found) for found in filled),
    ]
    conditions = [
        *_version_conditions(single_statement),
        *_advance_sequences(collection, enumerate(columns), arguments),
    ]
    rows = fill(
        "INSERT INTO {0} AS t0{1} SELECT {2} FROM {3}{4} ORDER BY r.n RETURNING {5}",
        name(collection.name),
        fill(" ({0})", commas(names)) if names else EMPTY,
        commas(cells),
        _source(columns, arguments),
        concat(" WHERE ", join(" AND ", conditions)) if conditions else EMPTY,
        _returning(collection, single_statement),
    )
    return _statement(
        collection,
        arguments,
        (("rows", rows),),
        HistoryEntry("create", "rows.data"),
        single_statement,
    )


def update(
    collection: Collection,
    columns: Columns,
    arguments: ArgumentSlots,
    *,
    single_statement: SingleStatement | None = None,
) -> Fragment:
    """Print the change of rows; the first column is the primary key.

    Its rows are the number of each row that was found, from 1, its key, and its revision when anything changed.
    """
    key, *others = columns
    changing = tracked_columns(collection, others)
    old = fill(
        "SELECT r.n, t0.{0} AS k{1} FROM {2} AS t0 JOIN {3} ON t0.{0} = {4}{5} ORDER BY t0.{0} FOR NO KEY UPDATE OF t0",
        name(key.name),
        join(
            "",
            [
                *(text(f", r.c{place}") for place in range(1, len(columns))),
                *(
                    concat(", t0.", name(found.name), f" AS w{place}")
                    for place, found in enumerate(changing)
                ),
                _rule_results(single_statement),
            ],
        ),
        name(collection.name),
        _source(columns, arguments),
        _cell(key, "r.c0"),
        _and(_version_conditions(single_statement)),
    )
    delta = (
        concat(", old.n, ", delta_of(changing), " AS delta")
        if collection.accountability == "all"
        else text(", old.n")
    )
    rows = fill(
        "UPDATE {0} AS t0 SET {1} FROM old WHERE t0.{2} = old.k{5}{6} RETURNING {3}{4}",
        name(collection.name),
        commas(
            concat(name(found.name), " = ", _cell(found, f"old.c{place}"))
            for place, found in enumerate(others, start=1)
        ),
        name(key.name),
        _returning(collection, single_statement),
        delta,
        _allowed(single_statement),
        _and(_advance_sequences(collection, enumerate(others, start=1), arguments)),
    )
    history = HistoryEntry("update", "rows.delta", only_when="rows.delta IS NOT NULL")
    return _statement(
        collection, arguments, (("old", old), ("rows", rows)), history, single_statement
    )


def touch(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print a change that names no column, of which the history tells the act only; answers as `update`."""
    rows = fill(
        "SELECT r.n, t.{0}::text AS item, {1} AS activity FROM {2} AS t JOIN {3} ON t.{0} = {4}",
        name(collection.key.name),
        ACTIVITY,
        name(collection.name),
        _source([collection.key], arguments),
        _cell(collection.key, "r.c0"),
    )
    return _statement(collection, arguments, (("rows", rows),), HistoryEntry("update"), None)


def delete(
    collection: Collection,
    arguments: ArgumentSlots,
    *,
    single_statement: SingleStatement | None = None,
) -> Fragment:
    """Print the deletion of rows by key; its rows are key and last revision of those that were found."""
    key = collection.key
    old = fill(
        "SELECT t0.{0} AS k{4} FROM {1} AS t0 WHERE t0.{0} {2}{3} ORDER BY t0.{0} FOR UPDATE",
        name(key.name),
        name(collection.name),
        fill("= {0}" if arguments.single else "= ANY ({0})", arguments.column(0, key_cast(key))),
        _and(_version_conditions(single_statement)),
        _rule_results(single_statement),
    )
    rows = fill(
        "DELETE FROM {0} AS t0 USING old WHERE t0.{1} = old.k{3} RETURNING {2}",
        name(collection.name),
        name(key.name),
        _returning(collection, single_statement),
        _allowed(single_statement),
    )
    history = HistoryEntry("delete", "NULL::json")
    return _statement(
        collection, arguments, (("old", old), ("rows", rows)), history, single_statement
    )


def auto_sort_field(collection: Collection) -> Field | None:
    """Return the field of manual sorting where new rows get the next place by themselves."""
    found = collection.fields.get(collection.sort_field or "")
    if found is None or found.column is None or found.type.family is not Family.NUMBER:
        return None
    return None if found.column.is_filled_by_database else found


def last_position(placed: Field) -> Fragment:
    """Print the last place that is taken."""
    return fill(
        "SELECT coalesce(max(s.{0}), 0)::bigint FROM {1} AS s",
        name(placed.name),
        name(placed.collection),
    )


# What a statement is put together of


def _statement(
    collection: Collection,
    arguments: ArgumentSlots,
    steps: tuple[tuple[str, Fragment], ...],
    history: HistoryEntry,
    single_statement: SingleStatement | None,
) -> Fragment:
    """Print the steps, the history of `rows`, and what is answered."""
    parts = [
        *steps,
        *history_steps(
            collection, history, history_action=arguments.history_action, author=arguments.author()
        ),
    ]
    if single_statement:
        parts.insert(0, ("v", text("SELECT structure, access FROM system_version")))
    queries = commas(fill("{0} AS ({1})", text(label), step) for label, step in parts)
    return fill("WITH {0} {1}", queries, _answer(collection, history, single_statement))


def _answer(
    collection: Collection, history: HistoryEntry, single_statement: SingleStatement | None
) -> Fragment:
    if single_statement:
        columns = (
            commas(text(f"rows.c{n}") for n in range(len(single_statement.outputs)))
            if single_statement.outputs
            else text("NULL")
        )
        shape = "SELECT {0}, v.structure, v.access, rows.found{1}{2} FROM v LEFT JOIN rows ON TRUE"
        shown = text(", rows.shown") if single_statement.shown else EMPTY
        return fill(
            shape,
            columns,
            shown,
            text(", (SELECT old.seen FROM old)") if single_statement.before else EMPTY,
        )
    revised = history.delta and collection.accountability == "all"
    revision = "NULL" if not revised else "rows.revision"
    if revised and history.only_when:
        revision = f"CASE WHEN {history.only_when} THEN rows.revision END"
    number = text("rows.n, " if history.action == "update" else "")
    return fill("SELECT {0}rows.item, {1} FROM rows", number, text(revision))


def _returning(collection: Collection, single_statement: SingleStatement | None) -> Fragment:
    """Print what a written row (t0) is asked for: its key, what the history takes of it, and the answer."""
    found = history_columns(collection)
    if single_statement:
        found += [
            text("TRUE AS found"),
            *(concat(shown, f" AS c{n}") for n, shown in enumerate(single_statement.outputs)),
        ]
        found += (
            [fill("system_require({0})", single_statement.after)] if single_statement.after else []
        )
        found += (
            [fill("coalesce({0}, FALSE) AS shown", single_statement.shown)]
            if single_statement.shown
            else []
        )
    return commas(found)


def _rule_results(single_statement: SingleStatement | None) -> Fragment:
    """Print what the rules before a write come to for a row as it was."""
    if single_statement is None or single_statement.before is None:
        return EMPTY
    return fill(
        ", coalesce({0}, FALSE) AS seen, coalesce({1}, FALSE) AS held", *single_statement.before
    )


def _allowed(single_statement: SingleStatement | None) -> Fragment:
    return text(" AND old.held") if single_statement and single_statement.before else EMPTY


def _version_conditions(single_statement: SingleStatement | None) -> list[Fragment]:
    """Print the condition that structure and rights are those that the statement was made under."""
    if single_statement is None:
        return []
    shape = "(SELECT v.structure = {0} AND v.access = {1} FROM v)"
    version = single_statement.version
    return [fill(shape, param(version.structure, "bigint"), param(version.access, "bigint"))]


def _advance_sequences(
    collection: Collection, columns: Iterable[tuple[int, Field]], arguments: ArgumentSlots
) -> list[Fragment]:
    """Print what moves sequences behind given keys: once, and before any row is there that others could clash with."""
    shape = "(SELECT system_pass_keys({0}, {1}, {2}))"
    return [
        fill(
            shape,
            param(collection.name, "text"),
            param(found.name, "text"),
            arguments.column_array(place, "bigint"),
        )
        for place, found in columns
        if found.has_sequence
    ]


def _and(conditions: list[Fragment]) -> Fragment:
    return join("", (concat(" AND ", condition) for condition in conditions))


# Values


def _source(columns: Columns, arguments: ArgumentSlots) -> Fragment:
    """Print the rows that were sent, as r (c0 …, n)."""
    places = list(enumerate(columns))
    labels = commas(text(label) for label in (*(f"c{place}" for place, _ in places), "n"))
    values = [arguments.column(place, _array_type(found)) for place, found in places]
    if arguments.single:
        return fill("(VALUES ({0})) AS r ({1})", commas([*values, text("1")]), labels)
    if not columns:
        return fill(
            "generate_series(1, {0}) AS r (n)",
            param(_slot(arguments.first_slot + AUTHOR_SLOTS), "integer"),
        )
    return fill("unnest({0}) WITH ORDINALITY AS r ({1})", commas(values), labels)


def _next_position(placed: Field) -> Fragment:
    return fill("({0}) + r.n", last_position(placed))


def _array_type(found: Field) -> str:
    """The type of the array's elements: text where the column's own type has no plain array."""
    return "text" if found.is_text_form or found.type.cast == "json" else found.type.cast


def key_cast(key: Field) -> str:
    """Return what a key is cast to."""
    return key.column.cast if key.is_text_form and key.column else _array_type(key)


def _cell(found: Field, column: str) -> Fragment:
    assert found.column
    if found.type_name.startswith("geometry"):
        return text(f"ST_GeomFromGeoJSON({column})")
    if found.is_numeric_boolean:
        return text(f"{column}::integer::{found.column.data_type}")
    if (_array_type(found) == "text" and found.type.cast != "text") or found.is_text_form:
        return text(f"{column}::{found.column.cast or found.type.cast}")
    return text(column)


@lru_cache(maxsize=1024)
def _slot(index: int) -> Placeholder:
    """Return one parameter for a literal, however often it is printed."""
    return Placeholder(Slot(index), _as_it_is, "")


def _as_it_is(value: object) -> object:
    return value
