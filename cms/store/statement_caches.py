"""Caches of finished statements, bounded by their texts and by what their keys hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from cachebox import LRUCache

from cms.access.dependencies import Dependencies
from cms.access.policy import Policy
from cms.caches import weight_of
from cms.query.sql.statement import Statement

MAX_STATEMENTS = 2_000
MAX_STATEMENT_CHARACTERS = 8_000_000
"""Weight of all cached statements: one with many relations is as long as hundreds of others."""


class CachedStatement(NamedTuple):
    """A statement, its dependencies, and the literals of the read that it was made for."""

    statement: Statement
    dependencies: Dependencies
    literals: tuple[object, ...] = ()

    def is_for(self, policy: Policy) -> bool:
        """Tell whether the statement is valid for a policy, whose name is in the key."""
        return self.dependencies.hold_for(policy)


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
