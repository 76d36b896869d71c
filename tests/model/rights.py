"""The rights of a member, the slow way: of all tables the part that is
there for it (docs/permissions.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.model.filters import Json, holds
from tests.model.reads import Params, Path, requested_fields
from tests.model.shape import KEY, Collection, Link, Row, Shape, Tables

RAW = "@"
"""Under this name a visible row holds its key, by which it is ordered and
found even where it may not be shown.
"""


def covers(fields: Sequence[str], name: str) -> bool:
    """Tell whether the fields of a permission, of which `*` is all, have this one among them."""
    return "*" in fields or name in fields


@dataclass(frozen=True)
class ReadGrant:
    """The fields (`*` is all) of the rows that fulfil the rule; `inherited` from the role's
    parent.
    """

    collection: str
    fields: tuple[str, ...]
    rule: Json
    inherited: bool = False

    def covers(self, name: str) -> bool:
        return covers(self.fields, name)


Role = Sequence[ReadGrant]


def granted(role: Role, name: str) -> list[ReadGrant]:
    return [grant for grant in role if grant.collection == name]


# What there is


def visible_shape(shape: Shape, role: Role) -> Shape:
    """Return the collections, columns and links that are there for a role in at least some rows."""
    return {
        name: _visible(shape, role, shape_of)
        for name, shape_of in shape.items()
        if granted(role, name)
    }


def _visible(shape: Shape, role: Role, collection: Collection) -> Collection:
    columns = {
        name: kind for name, kind in collection.columns.items() if sees(role, collection.name, name)
    }
    links = {
        name: _raw(role, name, link)
        for name, link in collection.links.items()
        if _goes(role, collection.name, (name, link))
    }
    sort_field = collection.sort_field if collection.sort_field in columns else None
    return Collection(collection.name, columns, links, sort_field)


def sees(role: Role, collection: str, name: str) -> bool:
    return any(grant.covers(name) for grant in granted(role, collection))


def _goes(role: Role, collection: str, named: tuple[str, Link]) -> bool:
    """A link needs its field, the column that stores it, the other
    collection, and the column that points back.
    """
    name, link = named
    here = [name.partition(":")[0], *([link.collection_column] if link.collection_column else [])]
    there = [link.far] if link.many else []
    return (
        bool(granted(role, link.target))
        and all(sees(role, collection, field) for field in here)
        and all(sees(role, link.target, field) for field in there)
    )


def _raw(role: Role, name: str, link: Link) -> Link:
    """A key that is not shown still ties rows together; `*` lists by
    key only where the key is a field.
    """
    if link.many:
        return replace(link, near=RAW + name, listed=sees(role, link.target, KEY))
    return replace(link, far=RAW)


def visible_tables(tables: Tables, role: Role) -> Tables:
    """Return the rows that a grant allows, each with the fields of
    those that allow it; others are null.
    """
    shape = visible_shape(tables.shape, role)
    return replace(
        tables,
        shape=shape,
        rows={name: list(_rows(tables, role, rows_seen)) for name, rows_seen in shape.items()},
    )


def _rows(tables: Tables, role: Role, visible: Collection) -> list[Row]:
    full = tables.shape[visible.name]
    grants = granted(role, visible.name)
    seen = []
    for row in tables.rows[visible.name]:
        allowing = [grant for grant in grants if holds(tables, full, row, grant.rule)]
        if allowing:
            seen.append(_visible_row(visible, row, allowing))
    return seen


def _visible_row(visible: Collection, row: Row, allowing: list[ReadGrant]) -> Row:
    def there(name: str) -> bool:
        return any(grant.covers(name) for grant in allowing)

    columns = {name: row[name] if there(name) else None for name in visible.columns}
    lists = {
        RAW + name: row[KEY] if there(name) else None
        for name, link in visible.links.items()
        if link.many
    }
    return {**columns, **lists, RAW: row[KEY]}


# What may be asked


def lists_unkeyed(shape: Shape, collection: Collection, query: Params) -> bool:
    """Tell whether a query lists items by a key that is no field for its caller."""
    if "aggregate" in query or "groupBy" in query:
        return False
    paths = [path.split(".") for path in query.get("fields", ["*"])]
    return _unkeyed(shape, collection, paths, query)


def _unkeyed(
    shape: Shape, collection: Collection, paths: list[Path], params: Mapping[str, Any]
) -> bool:
    aliases = params.get("alias", {})
    deep = params.get("deep", {})
    return any(
        _opens_unkeyed(shape, link, rests, deep.get(name, {}))
        for name, rests in requested_fields(collection, paths).items()
        if (link := collection.links.get(aliases.get(name, name)))
    )


def _opens_unkeyed(shape: Shape, link: Link, paths: list[Path], deep: Mapping[str, Any]) -> bool:
    if "_aggregate" in deep or "_groupBy" in deep:
        return False
    if not paths:
        return link.many and not link.listed
    params = {
        "alias": deep.get("_alias", {}),
        "deep": {key: value for key, value in deep.items() if key[0] != "_"},
    }
    return _unkeyed(shape, shape[link.target], paths, params)
