"""Indexes over single fields and over paths into JSON fields, as `cms index` makes them."""

from __future__ import annotations

from dataclasses import dataclass

from cms.database.connections import Database, Transaction
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Refused, invalid_query
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.schema.names import DottedName, FieldName, dotted_name
from cms.schema.system import is_system
from cms.schema.types.field_type import Trait
from cms.schema.types.structures import JSON
from cms.structure.indexes import (
    DeferredIndex,
    drop_invalid,
    drop_while_used,
    failed_build,
    index_build_lock,
)


@dataclass(frozen=True, slots=True)
class IndexTarget:
    """What an index is over: a field, or with `steps` a path into a JSON field."""

    collection: str
    field: str
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.field, *self.steps))


@dataclass(frozen=True, slots=True)
class ValueIndex:
    """An index that is there; `scans` is how often it has been used."""

    target: IndexTarget
    name: str
    is_valid: bool
    size: int
    scans: int


def value_indexes(transaction: Transaction, collection: str | None = None) -> list[ValueIndex]:
    """Return the indexes of one collection or of all, without those of constraints."""
    indexes = []
    for row in transaction.execute(statement("value_indexes"), (collection,)):
        table, field, steps, name, is_valid, size, scans = row
        target = IndexTarget(table, field, tuple(steps or ()))
        indexes.append(ValueIndex(target, name, is_valid, size, scans))
    return indexes


def index_target(catalogue: Catalogue, collection: str, path: str) -> IndexTarget:
    """Return what a name in the query language stands for, `price` or `meta.price`.

    Raises `Refused` INVALID_QUERY where no index can be over it.
    """
    table = catalogue.collections.get(collection)
    if table is None or table.kind is not Kind.TABLE:
        raise invalid_query(f'There is no table "{collection}"')
    if is_system(collection):
        raise invalid_query(f'"{collection}" is a table of the service itself')
    field, steps = _field_and_steps(table, path)
    column = field.column
    if column is None:
        raise invalid_query(f'"{field.name}" has no column of its own')
    is_json = Trait.JSON in field.type.traits
    if steps and column.base_type not in JSON.base_types:
        raise invalid_query(
            f'"{field.name}" is a column of type {column.data_type}: paths have indexes in columns '
            "of type json and jsonb"
        )
    if is_json and not steps:
        raise invalid_query(
            f'"{field.name}" holds JSON: name the path that is filtered or sorted by, '
            f"such as {field.name}.price"
        )
    return IndexTarget(collection, field.name, steps)


def _field_and_steps(table: Collection, path: str) -> tuple[Field, tuple[str, ...]]:
    name = FieldName(path)
    dotted = dotted_name(name, table.fields.__contains__) or DottedName(name, ())
    field = table.fields.get(dotted.head.written)
    if field is None or not all(dotted.steps):
        raise invalid_query(f'"{table.name}" has no field "{dotted.head.written}"')
    return field, dotted.steps


def make_index(database: Database, catalogue: Catalogue, target: IndexTarget) -> bool:
    """Build an index while others write; return whether it is new.

    Raises `Refused` SERVICE_UNAVAILABLE if the build fails; nothing is left of it.
    """
    if _is_indexed(database, target):
        return False
    field = catalogue.collections[target.collection].fields[target.field]
    index = DeferredIndex(target.collection, target.field, field.type.index_kind, target.steps)
    index.check_buildable(database)
    try:
        with index_build_lock(database, target.collection):
            # Another build may have made it while this one waited for the lock.
            if _is_indexed(database, target):
                return False
            # What a build has left behind whose process was killed.
            drop_invalid(database, target.collection, target.field)
            return index.build(database) is not None
    except (Refused, Stale) as error:
        name = f"{target.collection}.{target}"
        raise failed_build(f"The index of {name} could not be built", error) from error


def _is_indexed(database: Database, target: IndexTarget) -> bool:
    with database.transaction() as transaction:
        present = value_indexes(transaction, target.collection)
    return any(index.target == target and index.is_valid for index in present)


def drop_indexes(database: Database, target: IndexTarget) -> list[str]:
    """Drop the indexes over a field or path, and return their names."""
    with database.transaction() as transaction:
        present = value_indexes(transaction, target.collection)
    dropped = [index.name for index in present if index.target == target]
    drop_while_used(database, target.collection, dropped)
    return dropped
