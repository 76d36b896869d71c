"""What the database does by itself to rows when those that they point to are deleted (ON DELETE).

Foreign keys stand on tables, and items of one collection may lie in several: a partitioned table keeps its rows in
partitions, and rows of a table that inherits from another one are items of both. Tables that are no collection, or
have no key of one column, leave no history, but what goes with their rows may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

CatalogueRow = Mapping[str, Any]
TableName = tuple[str | None, str]
"""A table by its schema, which is None for that of the collections, and its name."""

_ACTS = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table as statements name it; with `only`, without the rows of those that inherit from it."""

    name: str
    schema: str | None = None
    only: bool = False


@dataclass(frozen=True, slots=True)
class RootTable:
    """A table with all its partitions, whose rows are told apart by one key.

    `collection` is that in whose history its rows are, if any; `key` its primary key, None where the table has none
    of one column.
    """

    table: Table
    collection: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ReferentialAction:
    """A foreign key that does something: which rows (`root_table`) of `table` lose or follow which of `foreign_table`.

    `changed` are those of its columns that become null, or get their defaults.
    """

    name: str
    on_delete: str
    root_table: RootTable
    table: Table
    columns: tuple[str, ...]
    foreign_root_table: RootTable
    foreign_table: Table
    foreign_columns: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReferentialActions:
    """The foreign keys by which a deletion changes or deletes other rows that have a history."""

    by_root_table: Mapping[RootTable, tuple[ReferentialAction, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Those to the rows of a table."""
    root_tables_of: Mapping[str, tuple[RootTable, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The tables that items lie in, by the collections from which a deletion does something to others."""
    incoming_keys: Mapping[RootTable, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many foreign keys lead to a table."""


@dataclass(frozen=True, slots=True)
class KeyedCollection:
    """What counts of a collection here: its primary key, and whether it has a history."""

    key: str
    recorded: bool


def actions_of(
    parts: Iterable[CatalogueRow],
    keys: Iterable[CatalogueRow],
    owners: Mapping[str, KeyedCollection],
) -> ReferentialActions:
    """Return the actions of the foreign keys; `owners` are the collections with a primary key.

    Those that leave no history are left out: keys of tables that record nothing, unless rows below them do.
    """
    lineage = _Inheritance(parts, owners)
    recorded = {name for name, owner in owners.items() if owner.recorded}
    kept = _leading_to_history([_action(key, lineage) for key in keys], recorded)
    by_root_table: dict[RootTable, list[ReferentialAction]] = {}
    for action in sorted(kept, key=_order):
        by_root_table.setdefault(action.foreign_root_table, []).append(action)
    root_tables = {name: tuple(lineage.root_tables(name)) for name in sorted(owners)}
    return ReferentialActions(
        by_root_table={root_table: tuple(actions) for root_table, actions in by_root_table.items()},
        root_tables_of={
            name: tables
            for name, tables in root_tables.items()
            if any(root_table in by_root_table for root_table in tables)
        },
        incoming_keys=Counter(action.root_table for action in kept),
    )


class _Inheritance:
    """Which tables are partitions of others, or inherit from them."""

    def __init__(
        self, parts: Iterable[CatalogueRow], owners: Mapping[str, KeyedCollection]
    ) -> None:
        self._owners = owners
        self._partitioned: dict[TableName, TableName] = {}
        self._parents: dict[TableName, list[TableName]] = {}
        self._heirs: dict[TableName, list[TableName]] = {}
        for part in parts:
            name = part["schema"], part["name"]
            parent = part["parent_schema"], part["parent_name"]
            if part["is_partition"]:
                self._partitioned[name] = parent
            else:
                self._parents.setdefault(name, []).append(parent)
                self._heirs.setdefault(parent, []).append(name)

    def table(self, name: TableName) -> Table:
        schema, bare = name
        return Table(bare, schema, only=name in self._heirs)

    def root_table(self, name: TableName) -> RootTable:
        """Return what a table is a partition of, or the table."""
        while name in self._partitioned:
            name = self._partitioned[name]
        owner = self._owner(name)
        return RootTable(self.table(name), self._collection(name), owner.key if owner else None)

    def root_tables(self, collection: str) -> Iterator[RootTable]:
        """Yield the tables that items of a collection lie in."""
        names: list[TableName] = [(None, collection)]
        for name in names:
            yield self.root_table(name)
            names += [heir for heir in self._heirs.get(name, ()) if heir not in names]

    def _owner(self, name: TableName) -> KeyedCollection | None:
        schema, bare = name
        return self._owners.get(bare) if schema is None else None

    def _collection(self, name: TableName) -> str | None:
        """Return the collection of a table: its own, or the nearest one that its rows are items of."""
        if self._owner(name):
            return name[1]
        inherited = (self._collection(parent) for parent in self._parents.get(name, ()))
        return next(filter(None, inherited), None)


def _action(key: CatalogueRow, lineage: _Inheritance) -> ReferentialAction:
    table, foreign = (
        (key["schema"], key["table_name"]),
        (key["foreign_schema"], key["foreign_table"]),
    )
    return ReferentialAction(
        name=key["name"],
        on_delete=_ACTS[key["on_delete"]],
        root_table=lineage.root_table(table),
        table=lineage.table(table),
        columns=tuple(key["columns"]),
        foreign_root_table=lineage.root_table(foreign),
        foreign_table=lineage.table(foreign),
        foreign_columns=tuple(key["foreign_columns"]),
        changed=tuple(key["changed"]),
    )


def _leading_to_history(
    actions: list[ReferentialAction], recorded: set[str]
) -> list[ReferentialAction]:
    """Return the actions that lead to rows with a history, at once or by those that go with them."""
    leading: set[RootTable] = set()
    while True:
        kept = [
            action
            for action in actions
            if action.root_table.collection in recorded
            or (action.on_delete == "CASCADE" and action.root_table in leading)
        ]
        reached = {action.foreign_root_table for action in kept}
        if reached == leading:
            return kept
        leading = reached


def _order(action: ReferentialAction) -> tuple[str, ...]:
    table = action.table
    return table.schema or "", table.name, action.name
