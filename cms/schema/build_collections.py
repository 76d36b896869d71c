"""Assemble single collections of the catalogue from the rows that `load_catalogue` selects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from sys import intern
from typing import Any

from cms.schema.defaults import CAST
from cms.schema.keys import TO_ONE, can_be_key, compound_key
from cms.schema.model import CheckConstraint, Collection, Column, Field, Kind
from cms.schema.records import DEFAULT_META
from cms.schema.referential_actions import CatalogueRow
from cms.schema.system import (
    ACTIVITY,
    QUEUE_PREFIX,
    REVISIONS,
    SYSTEM_COLLECTIONS,
    SYSTEM_PREFIX,
    is_system,
    system_table,
)
from cms.schema.types import ALIAS, ALIAS_SPECIALS, type_of_base_type, type_of_column
from cms.schema.types.field_type import FieldType
from cms.schema.types.structures import LIST
from cms.schema.types.texts import ENUM, INET, ORDERED

# NULL, or with the cast that PostgreSQL writes behind it: NULL::character varying.
_NULL = re.compile(rf"NULL{CAST}")

LoadedLists = Callable[[str], Any]
"""Returns a list in the answer of `load_catalogue` by its name.

It parses the list each time: all lists together take several times the memory of the catalogue.
"""


def collections_of(loaded: LoadedLists) -> dict[str, Collection]:
    """Return the collections of the rows by their names."""
    tables = {row["name"]: row for row in loaded("tables") if _is_listed(row["name"])}
    metas = {row["collection"]: _compact(row) for row in loaded("collections")}
    columns = _columns(loaded)
    field_metas = _grouped_by(loaded("fields"), "collection")
    checks = _grouped_by(loaded("checks"), "table_name")
    keys = {row["table_name"]: row["columns"] for row in loaded("keys") if row["kind"] == "p"}
    collections: dict[str, Collection] = {}
    # A table without settings is a collection, and so are settings without a table: a folder.
    for name in {*tables, *metas}:
        collections[name] = _collection(
            name,
            tables.get(name),
            {field.name: field for field in _fields(name, columns[name], field_metas[name])},
            key=keys.get(name, ()),
            meta=metas.get(name) or _system_meta(name),
            checks=_checks(checks[name]),
        )
    # Revisions outlive their collection. The last ids tell those of an earlier collection from
    # those of the one that has the name now.
    for row in loaded("dropped"):
        name = row["collection"]
        if name in collections:
            collections[name] = _with_former_history(collections[name], row)
    return collections


def _is_listed(table: str) -> bool:
    return not table.startswith((SYSTEM_PREFIX, QUEUE_PREFIX)) or table in SYSTEM_COLLECTIONS


def _grouped_by(rows: Iterable[CatalogueRow], key: str) -> defaultdict[str, list[CatalogueRow]]:
    grouped: defaultdict[str, list[CatalogueRow]] = defaultdict(list)
    for row in rows:
        grouped[row[key]].append(row)
    return grouped


def _system_meta(name: str) -> CatalogueRow | None:
    if not is_system(name):
        return None
    # System collections have no records in the database.
    return {
        "collection": name,
        "singleton": system_table(name).is_singleton,
        "hidden": True,
        "accountability": "all",
    }


def _compact(record: CatalogueRow) -> CatalogueRow:
    """Return a record without unset settings, which most of them are.

    A process keeps the records of all fields: equal texts in them are kept once.
    """
    compact: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, str):
            compact[name] = intern(value)
        # Where there is a default, None says that it does not apply.
        elif value is not None or name in DEFAULT_META:
            compact[name] = value
    return compact


def _field_metas(collection: str, stored: list[CatalogueRow]) -> list[CatalogueRow]:
    """Return the records of fields; those of system collections are in code, not in rows."""
    if not is_system(collection):
        return list(map(_compact, stored))
    table = system_table(collection)
    special = {**table.special, **dict.fromkeys(table.aliases, ("o2m",))}
    return [
        {"collection": collection, "field": field, "special": list(markers)}
        for field, markers in special.items()
    ]


# Columns

_SEARCH_INDEXES = {"parts": "search_index", "useless": "useless_search_index"}


def _columns(loaded: LoadedLists) -> defaultdict[str, dict[str, Column]]:
    """Return the columns by their tables and names."""
    columns: defaultdict[str, dict[str, Column]] = defaultdict(dict)
    for row in loaded("columns"):
        # Left out here, internal columns exist for nobody: neither reads nor rules nor exports can
        # name them.
        if row["name"] not in system_table(row["table_name"]).internal_columns:
            column = _column(row)
            columns[row["table_name"]][column.name] = column
    # Only indexes of one column come from the statement.
    for index in loaded("indexes"):
        _amend(columns, index["table_name"], index["column_name"], is_indexed=True)
        if index["is_unique"]:
            _amend(columns, index["table_name"], index["column_name"], is_unique=True)
    for index in loaded("search_indexes"):
        attribute = {_SEARCH_INDEXES[index["kind"]]: index["name"]}
        _amend(columns, index["table_name"], index["column_name"], **attribute)
    for row in loaded("nondeterministic_columns"):
        _amend(columns, row["table_name"], row["column_name"], is_nondeterministic=True)
    for row in loaded("builds"):
        kinds = frozenset(row["kinds"])
        _amend(columns, row["collection"], row["field"], requested_builds=kinds)
    for key in loaded("keys"):
        # Another key of several columns says nothing of any one of them.
        if len(key["columns"]) > 1:
            if key["kind"] == "p" and not is_system(key["table_name"]):
                for column in key["columns"]:
                    _amend(columns, key["table_name"], column, is_primary_key=True)
        else:
            _amend(columns, key["table_name"], key["columns"][0], **_key_attributes(key))
            # Another program may have added a second key to the column.
            if not key["is_checked"]:
                _amend(columns, key["table_name"], key["columns"][0], has_unchecked_key=True)
    return columns


def _column(row: CatalogueRow) -> Column:
    return Column(
        name=intern(row["name"]),
        data_type=intern(row["data_type"]),
        base_type=intern(row["base_type"]),
        default=_default(row["default_value"]),
        max_length=row["max_length"],
        precision=row["precision"],
        scale=row["scale"],
        is_nullable=row["nullable"],
        is_generated=row["generated"],
        has_auto_increment=row["auto_increment"],
        comment=row["comment"],
        cast=intern(row["cast"]),
        choices=tuple(row["choices"]) if row["choices"] else None,
        element=_element(row["element"]),
        is_domain=row["is_domain"],
    )


def _element(base_type: str | None) -> str | None:
    """Return the type of an array's elements; None where clients cannot write them as JSON."""
    if base_type is None or not type_of_base_type(base_type).has_list_elements:
        return None
    return base_type


def _default(expression: str | None) -> str | None:
    """Return a default's expression; None for NULL::character varying, which many tools write."""
    if expression and _NULL.fullmatch(expression):
        return None
    return expression


def _key_attributes(key: CatalogueRow) -> dict[str, Any]:
    # pg_constraint.contype: f is a foreign key, p a primary key, u a unique constraint.
    if key["kind"] == "f":
        return {"foreign_table": key["foreign_table"], "foreign_column": key["foreign_columns"][0]}
    if key["kind"] == "p":
        return {"is_primary_key": True, "is_unique": True}
    return {"is_unique": True}


def _checks(rows: Iterable[CatalogueRow]) -> dict[str, CheckConstraint]:
    """Return checks by their names; the check of a domain applies to all columns of the domain."""
    checks: dict[str, CheckConstraint] = {}
    for row in rows:
        name = row["name"]
        # The statement gives a row for each column that has the domain.
        columns = tuple(row["columns"])
        if name in checks:
            columns = (*checks[name].columns, *columns)
        # Tables of others have no sentences for their checks: the condition stands in.
        rule = system_table(row["table_name"]).rule_of(name) or row["rule"]
        checks[name] = CheckConstraint(columns, rule, row["expression"])
    return checks


def _amend(
    columns: Mapping[str, dict[str, Column]], table: str, column: str, **attributes: Any
) -> None:
    # Internal columns have indexes and keys too, but are not listed.
    if column in columns[table]:
        columns[table][column] = replace(columns[table][column], **attributes)


# Collections and fields


def _collection(
    name: str,
    table: CatalogueRow | None,
    fields: Mapping[str, Field],
    *,
    key: Sequence[str],
    meta: CatalogueRow | None,
    checks: Mapping[str, CheckConstraint],
) -> Collection:
    return Collection(
        name=name,
        kind=_kind(table),
        fields=fields,
        primary_key=_primary_key(name, table, fields, key),
        meta=meta,
        comment=table["comment"] if table else None,
        is_system=is_system(name),
        has_side_effects=bool(table and table["does_more"]),
        checks=checks,
        triggered_actions=frozenset(table["triggered_actions"] if table else ()),
    )


def _kind(table: CatalogueRow | None) -> Kind:
    if table is None:
        return Kind.FOLDER
    if table["is_view"]:
        return Kind.VIEW
    return Kind.TABLE


def _with_former_history(collection: Collection, dropped: CatalogueRow) -> Collection:
    """Return a collection whose name belonged to a dropped collection before."""
    last_ids = {ACTIVITY: dropped["last_activity"], REVISIONS: dropped["last_revision"]}
    return replace(collection, former_history=last_ids)


def _primary_key(
    name: str, table: CatalogueRow | None, fields: Mapping[str, Field], key: Sequence[str]
) -> Field | None:
    parts = tuple(fields[column] for column in key if column in fields)
    # That of a partitioned system table includes the column of its partitions.
    is_usable = len(parts) == len(key) and all(map(can_be_key, parts))
    if not parts or not is_usable or (is_system(name) and len(parts) > 1):
        return _stand_in_key(name, table, fields)
    if len(parts) == 1:
        return parts[0]
    return compound_key(name, parts)


def _stand_in_key(
    name: str, table: CatalogueRow | None, fields: Mapping[str, Field]
) -> Field | None:
    """Return `id` as the key of views, which have none, and of partitioned system tables."""
    if table is None or not (table["is_view"] or is_system(name)):
        return None
    if "id" not in fields or not can_be_key(fields["id"]):
        return None
    return fields["id"]


def _fields(
    collection: str, columns: Mapping[str, Column], metas: list[CatalogueRow]
) -> Iterable[Field]:
    """Yield the fields with columns in the table's order, then the aliases."""
    meta_by_name = {row["field"]: row for row in _field_metas(collection, metas)}
    for name, column in columns.items():
        meta = meta_by_name.get(name)
        special = tuple((meta or {}).get("special") or ())
        yield Field(collection, name, _field_type(column, special), special, column, meta)
    for name, row in meta_by_name.items():
        special = tuple(row.get("special") or ())
        if name not in columns:
            # Another record without a column is that of a column that is gone, or of a foreign key
            # of several columns; build.py knows which of them these are.
            marker = special if ALIAS_SPECIALS.intersection(special) else (TO_ONE,)
            yield Field(collection, name, ALIAS, marker, None, row)


def _field_type(column: Column, special: tuple[str, ...]) -> FieldType:
    # Choices and elements first: the names of enum and array types are in no table of types.
    if column.choices:
        return ENUM
    if column.element:
        return LIST
    field_type = type_of_column(column.base_type, column.data_type, special)
    # Items are named by the text of their address with its mask.
    if field_type is INET and (column.is_primary_key or column.foreign_table):
        return ORDERED
    return field_type
