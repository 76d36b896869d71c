"""The changes that PostgreSQL makes by itself to rows whose target is deleted (ON DELETE).

Foreign keys belong to tables, and items of one collection may lie in several: a partitioned table
keeps its rows in partitions, and rows of a table that inherits from another one are items of both.
Rows of tables that are no collection, or have no primary key, leave no history. But
their deletion may delete other rows, which do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

CatalogueRow = Mapping[str, Any]
"""A row of one of the lists that `load_catalogue` selects."""
TableName = tuple[str | None, str]
"""The schema of a table, which is None for the schema of the collections, and its name."""

ACTIONS_BY_CODE = {
    "a": "NO ACTION",
    "r": "RESTRICT",
    "c": "CASCADE",
    "n": "SET NULL",
    "d": "SET DEFAULT",
}
"""The actions of foreign keys when their target changes or is deleted, by PostgreSQL's codes."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as statements name it; `only` leaves out the rows of tables that inherit from it."""

    name: str
    # None also spares the statement the name of the schema: the service's own is first in the
    # search path.
    schema: str | None = None
    only: bool = False


@dataclass(frozen=True, slots=True)
class RootTable:
    """A table with all its partitions.

    `collection` is the collection in whose history its rows are, if any; with `has_key` the table
    has the primary key of that collection.
    """

    table: Table
    collection: str | None = None
    has_key: bool = False


@dataclass(frozen=True, slots=True)
class ReferentialAction:
    """A foreign key whose ON DELETE changes or deletes rows.

    It leads from rows of `table` to rows of `foreign_table`. `changed` are its columns that become
    null or get their defaults.
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
    """The actions of foreign keys by the table that the keys point to."""
    root_tables_of: Mapping[str, tuple[RootTable, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The tables of the items, for each collection from which a deletion has effects on other rows.
    """
    action_counts: Mapping[RootTable, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many of the foreign keys with an action each table has."""


def actions_of(
    parts: Iterable[CatalogueRow],
    keys: Iterable[CatalogueRow],
    owners: Mapping[str, bool],
) -> ReferentialActions:
    """Return the actions of the foreign keys.

    `owners` are the collections with a primary key, and whether their items have a history.

    Actions that leave no history are left out: those on rows without a history, unless their
    deletion deletes other rows that have one.
    """
    inheritance = _Inheritance(parts, owners)
    actions = [_action(key, inheritance) for key in keys]
    actions = _leading_to_history(actions, owners)
    by_root_table = _by_root_table(actions)
    root_tables_of: dict[str, tuple[RootTable, ...]] = {}
    for name in sorted(owners):
        root_tables = tuple(inheritance.root_tables(name))
        # Most collections have no such keys; their deletions then need no further statement.
        if not by_root_table.keys().isdisjoint(root_tables):
            root_tables_of[name] = root_tables
    return ReferentialActions(
        by_root_table=by_root_table,
        root_tables_of=root_tables_of,
        action_counts=Counter(action.root_table for action in actions),
    )


def _by_root_table(
    actions: Iterable[ReferentialAction],
) -> dict[RootTable, tuple[ReferentialAction, ...]]:
    """Return actions by the tables that their foreign keys point to."""
    groups: dict[RootTable, list[ReferentialAction]] = {}
    # One order in every process: deletions at the same time then lock rows of several tables alike.
    for action in sorted(actions, key=_order):
        groups.setdefault(action.foreign_root_table, []).append(action)
    return {root_table: tuple(group) for root_table, group in groups.items()}


class _Inheritance:
    """The tables that are partitions of others, or inherit from them."""

    def __init__(self, parts: Iterable[CatalogueRow], owners: Mapping[str, bool]) -> None:
        self._owners = owners
        self._partitioned: dict[TableName, TableName] = {}
        self._parents: dict[TableName, list[TableName]] = {}
        self._children: dict[TableName, list[TableName]] = {}
        for part in parts:
            name = part["schema"], part["name"]
            parent = part["parent_schema"], part["parent_name"]
            if part["is_partition"]:
                self._partitioned[name] = parent
            else:
                self._parents.setdefault(name, []).append(parent)
                self._children.setdefault(parent, []).append(name)

    def table(self, name: TableName) -> Table:
        """Return a table for foreign keys, which hold for its own rows only, not for children's."""
        schema, table_name = name
        return Table(table_name, schema, only=name in self._children)

    def root_table(self, name: TableName) -> RootTable:
        """Return the table that a partition belongs to; any other table is its own root."""
        # A partition may be partitioned itself.
        while name in self._partitioned:
            name = self._partitioned[name]
        return RootTable(self.table(name), self._collection(name), self._is_owner(name))

    def root_tables(self, collection: str) -> Iterator[RootTable]:
        """Yield the tables that hold items of a collection."""
        names: list[TableName] = [(None, collection)]
        # The list grows while the loop runs, by the children of children.
        for name in names:
            yield self.root_table(name)
            for child in self._children.get(name, ()):
                if child not in names:
                    names.append(child)

    def _is_owner(self, name: TableName) -> bool:
        schema, table_name = name
        # Collections are tables of one schema; others may have tables of the same names.
        return schema is None and table_name in self._owners

    def _collection(self, name: TableName) -> str | None:
        """Return the collection of a table, or else of its nearest parent that has one."""
        if self._is_owner(name):
            return name[1]
        for parent in self._parents.get(name, ()):
            if collection := self._collection(parent):
                return collection
        return None


def _action(key: CatalogueRow, inheritance: _Inheritance) -> ReferentialAction:
    table = (key["schema"], key["table_name"])
    foreign = (key["foreign_schema"], key["foreign_table"])
    return ReferentialAction(
        name=key["name"],
        on_delete=ACTIONS_BY_CODE[key["on_delete"]],
        root_table=inheritance.root_table(table),
        table=inheritance.table(table),
        columns=tuple(key["columns"]),
        foreign_root_table=inheritance.root_table(foreign),
        foreign_table=inheritance.table(foreign),
        foreign_columns=tuple(key["foreign_columns"]),
        changed=tuple(key["changed"]),
    )


def _leading_to_history(
    actions: list[ReferentialAction], owners: Mapping[str, bool]
) -> list[ReferentialAction]:
    """Return the actions on rows with a history, and those whose cascades lead to such rows."""
    recorded = {name for name, has_history in owners.items() if has_history}
    leading_tables: set[RootTable] = set()
    # Each round goes one foreign key further from the rows with a history, until none is added.
    while True:
        leading_actions: list[ReferentialAction] = []
        for action in actions:
            cascades = action.on_delete == "CASCADE" and action.root_table in leading_tables
            if cascades or action.root_table.collection in recorded:
                leading_actions.append(action)
        targets = {action.foreign_root_table for action in leading_actions}
        if targets == leading_tables:
            return leading_actions
        leading_tables = targets


def _order(action: ReferentialAction) -> tuple[str, ...]:
    table = action.table
    return table.schema or "", table.name, action.name
