"""Caches of finished statements, bounded by the length of their texts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from cachebox import LRUCache

from cms.access.dependencies import Dependencies
from cms.access.policy import Policy
from cms.query.sql.statement import Statement

MAX_STATEMENTS = 2_000
MAX_STATEMENT_CHARACTERS = 8_000_000
"""Characters of all cached statements: one with many relations is as long as hundreds of others."""


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
    return LRUCache(MAX_STATEMENT_CHARACTERS, getsizeof=lambda _, cached: _weight(cached.statement))


def _weight(statement: Statement) -> int:
    """Return the share of the cache that a statement takes.

    The weight of a short one is so high that at most `MAX_STATEMENTS` stay. One that is longer than
    the cache weighs as much as all of it, or the cache would not take it.
    """
    lowest_weight = MAX_STATEMENT_CHARACTERS // MAX_STATEMENTS
    return min(max(len(statement.text), lowest_weight), MAX_STATEMENT_CHARACTERS)
