"""The printer of writes: arrays of values in, one statement for any number of rows.

Values travel as one array for each column, so that ten rows and ten thousand are the same short text, prepared once.
"""

from __future__ import annotations

from collections.abc import Sequence

from cms.fragment import Fragment, commas, concat, fill, name, param, text
from cms.schema.model import Collection, Field

Columns = Sequence[Field]
Matrix = Sequence[Sequence[str | None]]


def insert(collection: Collection, columns: Columns, rows: Matrix) -> Fragment:
    """Print the insertion of rows in their order; returns their keys in that order."""
    if not columns:
        shape = "INSERT INTO {0} SELECT FROM generate_series(1, {1}) RETURNING {2}::text"
        return fill(shape, name(collection.name), param(str(len(rows)), "integer"), _key(collection))
    shape = "INSERT INTO {0} ({1}) SELECT {2} FROM {3} ORDER BY r.n RETURNING {4}::text"
    return fill(
        shape,
        name(collection.name),
        commas(name(field.name) for field in columns),
        commas(_cell(field, place) for place, field in enumerate(columns)),
        _unnested(columns, rows),
        _key(collection),
    )


def update(collection: Collection, columns: Columns, rows: Matrix) -> Fragment:
    """Print the change of rows; the first column is the primary key.

    Returns the number of each row that was found, from 1, and its key.
    """
    key, *others = columns
    shape = "UPDATE {0} AS t SET {1} FROM {2} WHERE t.{3} = {4} RETURNING r.n, t.{3}::text"
    assignments = commas(
        concat(name(field.name), " = ", _cell(field, place)) for place, field in enumerate(others, start=1)
    )
    return fill(shape, name(collection.name), assignments, _unnested(columns, rows), _key(collection), _cell(key, 0))


def delete(collection: Collection, keys: Sequence[str]) -> Fragment:
    """Print the deletion of rows by key; returns the keys that were found."""
    shape = "DELETE FROM {0} WHERE {1} = ANY ({2}) RETURNING {1}::text"
    cast = _cast(collection.fields[str(collection.primary_key)])
    return fill(shape, name(collection.name), _key(collection), param(list(keys), f"{cast}[]"))


def present(collection: Collection, rows: Matrix) -> Fragment:
    """Print the question which of the keys are there, for a change that names no column; answers as `update`."""
    shape = "SELECT r.n, t.{1}::text FROM {0} AS t JOIN {2} ON t.{1} = {3}"
    key = collection.fields[str(collection.primary_key)]
    return fill(shape, name(collection.name), _key(collection), _unnested([key], rows), _cell(key, 0))


def first(collection: Collection) -> Fragment:
    """Print the key of a singleton's row."""
    return fill("SELECT {1}::text FROM {0} ORDER BY {1} LIMIT 1", name(collection.name), _key(collection))


def lock_row(collection: Collection, key: str) -> Fragment:
    """Print the lock of one row, for the transaction."""
    column = collection.fields[str(collection.primary_key)]
    shape = "SELECT FROM {0} WHERE {1} = {2} FOR UPDATE"
    return fill(shape, name(collection.name), _key(collection), param(key, _cast(column)))


def lock_of(collection: Collection) -> Fragment:
    """Print the lock under which a singleton gets its one row."""
    return fill("SELECT pg_advisory_xact_lock(hashtextextended({0}, 1))", param(collection.name, "text"))


def _key(collection: Collection) -> Fragment:
    return name(str(collection.primary_key))


def _unnested(columns: Columns, rows: Matrix) -> Fragment:
    arrays = (param([row[place] for row in rows], f"{_element(field)}[]") for place, field in enumerate(columns))
    names = commas(text(f"c{place}") for place in range(len(columns)))
    return fill("unnest({0}) WITH ORDINALITY AS r ({1}, n)", commas(arrays), names)


def _cast(key: Field) -> str:
    return key.column.data_type if key.type_name == "unknown" and key.column else _element(key)


def _element(field: Field) -> str:
    """The type of the array's elements: text where the column's own type has no plain array."""
    return "text" if field.type_name == "unknown" or field.type.cast == "json" else field.type.cast


def _cell(field: Field, place: int) -> Fragment:
    assert field.column
    if field.type_name.startswith("geometry"):
        return text(f"ST_GeomFromGeoJSON(r.c{place})")
    if (_element(field) == "text" and field.type.cast != "text") or field.type_name == "unknown":
        return text(f"r.c{place}::{field.column.data_type}")
    return text(f"r.c{place}")
