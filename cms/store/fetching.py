"""Statements with placeholders, run with the literals and the caller of one request."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

from cms.database.connections import Fetch, Row
from cms.fragment import Fragment
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.sql.statement import Statement
from cms.store.context import RequestContext
from cms.store.counters import check_version
from cms.store.snapshot import CachedStatement, Snapshot
from cms.store.store import Store


def cached_statement(store: Store, snapshot: Snapshot, key: Hashable) -> Statement | None:
    """Return the statement of a write from the cache; counts whether it is there."""
    # The library's types forget that there may be none.
    cached = cast("CachedStatement | None", snapshot.write_statements.get(key))
    if cached is None:
        store.database.metrics.count_plan_cache_miss()
        return None
    store.database.metrics.count_plan_cache_hit()
    return cached.statement


def fetch_fragment(fetch: Fetch, fragment: Fragment, bindings: Bindings) -> list[Row]:
    """Run a statement that is printed for this one call, and return its rows."""
    text, values = fragment.numbered()
    return fetch(text, bind_values(values, bindings))


def fetch_statement(fetch: Fetch, statement: Statement, bindings: Bindings) -> list[Row]:
    """Run a finished statement and return its rows."""
    return fetch(statement.text, bind_values(statement.values, bindings))


def fetch_current(
    context: RequestContext, fetch: Fetch, statement: Statement, literals: Sequence[object]
) -> list[Row]:
    """Run a statement that selects the counters, and return its rows.

    Raises `Stale` if it has met other counters than those of the snapshot.
    """
    rows = fetch_statement(fetch, statement, context.bindings(literals))
    check_version(context.snapshot, statement.version(rows))
    return rows
