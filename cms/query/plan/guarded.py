"""What the planner takes; only `cms.access.guard` makes it."""

from __future__ import annotations

from dataclasses import dataclass

from cms.query.language.ast import Query
from cms.schema.model import Collection


@dataclass(frozen=True, slots=True)
class Guarded:
    """A query of a collection that its caller may ask: `*` written out, every name known and allowed.

    `touched_collections` are the names of all collections that it speaks of.
    """

    collection: Collection
    query: Query
    touched_collections: frozenset[str] = frozenset()
