"""The input of the planner; only `cms.access.guard` makes it."""

from __future__ import annotations

from dataclasses import dataclass

from cms.query.language.ast import Query
from cms.schema.model import Collection


@dataclass(frozen=True, slots=True)
class Guarded:
    """A query that its caller may ask: `*` is written out, every name exists and is allowed.

    `touched_collections` are the names of all collections that it reads.
    """

    collection: Collection
    query: Query
    touched_collections: frozenset[str] = frozenset()
