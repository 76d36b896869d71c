"""What the model knows of a database: collections with their columns and
links, and the rows as plain dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

KEY = "id"


@dataclass(frozen=True, slots=True)
class Link:
    """One step of a relation: the rows of `target` whose column `far`
    equals this side's column `near`.

    `collection_column` is this side's column with the name of the collection that the step leads
    to (many-to-any); such a link is named `item:headings`, and its key is stored as text. Of
    lists `*` names those that are `listed`.
    """

    target: str
    near: str
    far: str
    many: bool
    collection_column: str | None = None
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Collection:
    """`columns` are the types by name, the key among them; a to-one
    link has the name of its column.
    """

    name: str
    columns: Mapping[str, str]
    links: Mapping[str, Link]
    sort_field: str | None = None

    def arms(self, name: str) -> list[str]:
        """Return the links of a many-to-any column, one for each collection that it may lead to."""
        return [link for link in self.links if link.startswith(f"{name}:")]


Shape = Mapping[str, Collection]


@dataclass(frozen=True, slots=True)
class Tables:
    """A shape with its rows in the order of their keys. `order` ranks every
    text as the database's collation does.
    """

    shape: Shape
    rows: Mapping[str, list[Row]]
    order: Mapping[str, int]
    accents: bool

    def related(self, row: Row, link: Link) -> list[Row]:
        """Return the rows at the other end; null leads nowhere."""
        near = row[link.near]
        if near is None or (link.collection_column and row[link.collection_column] != link.target):
            return []
        return [
            other
            for other in self.rows[link.target]
            if _same(other[link.far], near, as_text=bool(link.collection_column))
        ]


def _same(far: Any, near: Any, *, as_text: bool) -> bool:
    return bool(str(far) == near if as_text else far == near)
