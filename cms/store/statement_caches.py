"""Caches of finished statements, bounded by their texts and by what their keys hold."""

from __future__ import annotations

from collections.abc import Hashable, Set
from typing import NamedTuple

from cachebox import LRUCache

from cms.caches import weight_of
from cms.query.sql.statement import Statement

MAX_STATEMENTS = 2_000
MAX_STATEMENT_CHARACTERS = 8_000_000
"""Weight of all cached statements: one with many relations is as long as hundreds of others."""


class CachedStatement(NamedTuple):
    """A statement, and the literals of the read that it was made for.

    It is the same as long as none of the collections changes that were `looked_up` for it; None for
    one that may depend on all of the structure. Other rights are another key.
    """

    statement: Statement
    looked_up: Set[str] | None
    literals: tuple[object, ...] = ()

    def outlives(self, changed: Set[str]) -> bool:
        """Tell whether the statement is the same after these collections have changed."""
        return self.looked_up is not None and self.looked_up.isdisjoint(changed)


StatementCache = LRUCache[Hashable, CachedStatement]


def statement_cache() -> StatementCache:
    """Return an empty cache of statements."""
    return LRUCache(MAX_STATEMENT_CHARACTERS, getsizeof=_weight)


def _weight(key: Hashable, cached: CachedStatement) -> int:
    """Return the share of the cache that a statement takes, with its key and its literals.

    The weight of a short one is so high that at most `MAX_STATEMENTS` stay. One that is longer than
    the cache weighs as much as all of it, or the cache would not take it.
    """
    lowest_weight = MAX_STATEMENT_CHARACTERS // MAX_STATEMENTS
    weight = len(cached.statement.text) + weight_of(key) + weight_of(cached.literals)
    return min(max(weight, lowest_weight), MAX_STATEMENT_CHARACTERS)
