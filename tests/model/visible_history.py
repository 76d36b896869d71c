"""The history as a member sees it, the slow way: of all records those that
are there for it (docs/history.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.model.filters import Json, holds
from tests.model.rights import ReadGrant, Role, granted
from tests.model.shape import KEY, Collection, Row, Tables
from tests.model.values import read, split

Record = Mapping[str, Any]

CHANGED_IN_HISTORY = ("csv", "hash")
"""Kinds of columns that revisions hold in another form or not at all: no rule
over them can be tried on a revision.
"""


def seen(tables: Tables, role: Role, records: list[Record]) -> list[Record]:
    """Return activity, or revisions with the members of their contents, that a
    role shows; `tables` is how it is now.
    """
    return [part for record in records for part in _visible(tables, role, record)]


def _visible(tables: Tables, role: Role, record: Record) -> Iterator[Record]:
    collection = tables.shape.get(record["collection"])
    if collection is None:
        return
    fulfils = _tests(tables, collection, record)

    def there(name: str) -> bool:
        covering = [grant for grant in granted(role, collection.name) if grant.covers(name)]
        return all(any(allows(grant) for grant in covering) for allows in fulfils)

    if there(KEY):
        names = [name for name in collection.columns if there(name)]
        yield {
            **record,
            **{
                part: _narrowed(record[part], names) for part in ("data", "delta") if part in record
            },
        }


def _narrowed(values: Record | None, names: list[str]) -> Record | None:
    return values and {name: value for name, value in values.items() if name in names}


def _tests(
    tables: Tables, collection: Collection, record: Record
) -> list[Callable[[ReadGrant], bool]]:
    """Return what a grant must pass: the item as it is now, and as a revision holds it."""
    rows = [row for row in tables.rows[collection.name] if str(row[KEY]) == record["item"]]

    def now(grant: ReadGrant) -> bool:
        return is_everything(grant.rule) or any(
            holds(tables, collection, row, grant.rule) for row in rows
        )

    def then(grant: ReadGrant) -> bool:
        row = _row(collection, record["data"])
        return is_everything(grant.rule) or _fulfils(tables, collection, row, grant.rule)

    return [now, then] if "data" in record else [now]


def is_everything(rule: Json) -> bool:
    """Tell whether a rule is seen to hold for every item, those that are gone as well."""
    return all(name == "_and" and not condition for name, condition in rule.items())


def _row(collection: Collection, data: Record) -> Row:
    values = {name: data.get(name) for name in collection.columns}
    return {
        name: None if value is None or kind in CHANGED_IN_HISTORY else read(kind, value)
        for (name, kind), value in zip(collection.columns.items(), values.values(), strict=True)
    }


def _fulfils(tables: Tables, collection: Collection, row: Row, rule: Json) -> bool:
    """Alternatives stand by themselves; what looks at a column that is
    held in another form does not hold.
    """
    return all(_entry(tables, collection, row, name, condition) for name, condition in rule.items())


def _entry(tables: Tables, collection: Collection, row: Row, name: str, operand: Any) -> bool:
    match name:
        case "_and":
            return all(_fulfils(tables, collection, row, item) for item in operand)
        case "_or":
            return any(_fulfils(tables, collection, row, item) for item in operand)
        case _:
            kinds = {collection.columns[column] for column in _columns(collection, name)}
            return kinds.isdisjoint(CHANGED_IN_HISTORY) and holds(
                tables, collection, row, {name: operand}
            )


def _columns(collection: Collection, name: str) -> list[str]:
    """Return the item's own columns that a field, a function of one or a link looks at."""
    field = split(name)[1]
    link = collection.links.get(field)
    if link is None:
        return [field]
    if link.collection_column:
        return [link.near, link.collection_column]
    return [link.near]
