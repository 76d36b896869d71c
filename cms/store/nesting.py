"""Reads whose lists might hold too many rows: PostgreSQL's own estimate decides (MAX_NESTED_ROWS)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from cms import jsontext
from cms.errors import Refused, invalid_query
from cms.fragment import Fragment, commas, concat, fill, name
from cms.query.arrays import array
from cms.query.bind import Context, bound
from cms.query.estimate import Estimate, estimate_of
from cms.query.nesting import Level, columns_of, heaviest_rows, longest_chain, nested_rows
from cms.query.sizes import WIDE
from cms.query.statement import Statement
from cms.store.statements import statement
from cms.store.store import Fetch, Scene, Store
from cms.store.wire import Portions

SECONDS_KEPT = 60
UNEVEN = 10
"""How many times more than it may nest a read could come to, were all lists as long as the longest.

The estimate knows the mean: it says nothing of the one author who wrote most of the articles, whom a read may pick.
"""

SMALL = 1_000_000
"""Bytes of a table whose rows are counted in no time."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Where a statement is about to run: `explain` runs there, `analyze` where tables may be analyzed."""

    explain: Fetch
    analyze: Callable[[Fragment], object]


def planner_of(store: Store) -> Planner:
    """Return the planner of reads outside of transactions."""
    return Planner(store.database.fetch_anew, store.database.run_primary)


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement with the literals of one request; `top` is the number of its items, where it is known.

    `batch` is how many of them are held at a time, where they are streamed.
    """

    statement: Statement
    literals: Sequence[object]
    top: int | None = None
    batch: int | None = None


def parameters(store: Store, scene: Scene, asked: Asked, planner: Planner) -> list[object]:
    """Return the parameters of a statement that may run; raises `Refused` INVALID_QUERY for one that nests too much.

    Most statements cannot, whatever is in the tables. For the others PostgreSQL's estimate is kept for a while.
    """
    context = Context(asked.literals, scene.actor.user, scene.actor.role)
    values = bound(asked.statement.values, context)
    nesting = asked.statement.nesting
    if nesting is None or nesting.max_rows <= store.max_nested_rows:
        return values
    if nested_rows(nesting, asked.literals, top=_at_a_time(asked, nesting)) > store.max_nested_rows:
        _refuse_too_many(store, scene, asked, _estimator(asked, values, planner))
    return values


def may_be_much(store: Store, statement: Statement) -> bool:
    """Tell whether a statement is to be looked at before it runs; most need not, whatever is in the tables."""
    nesting = statement.nesting
    size = statement.size
    if nesting is not None and nesting.max_rows > store.max_nested_rows:
        return True
    return size.whole > store.max_answer_size or size.row > WIDE


def portions_of(store: Store, asked: Asked, max_bytes: int) -> Portions | None:
    """Return how the rows of a statement are to be taken; None where they cannot be too large."""
    size = asked.statement.size
    whole = size.whole if asked.top is None else size.row * asked.top
    return None if whole <= max_bytes and size.row <= WIDE else Portions(size.portion, max_bytes, store.max_answer_size)


def _at_a_time(asked: Asked, nesting: Level) -> int | None:
    if asked.batch is None:
        return asked.top
    return min(asked.batch, nesting.reach or asked.batch)


def _refuse_too_many(store: Store, scene: Scene, asked: Asked, estimate: Callable[[], Estimate]) -> None:
    # $NOW and the caller stand beside the literals: they would make another estimate of every request.
    digest = sha256(repr(asked.literals).encode()).digest()
    key = asked.statement.text, digest, int(time.monotonic() / SECONDS_KEPT)
    expected = scene.snapshot.estimates.setdefault_with(key, estimate)
    nesting = asked.statement.nesting
    assert nesting
    share = min(1.0, asked.batch / max(expected.top, 1.0)) if asked.batch else 1.0
    top = max(expected.top * share, 1.0) if asked.top is None else asked.top
    uneven = expected.heaviest * top > store.max_nested_rows * UNEVEN
    if uneven or expected.nested * share > store.max_nested_rows:
        chain = longest_chain(nesting)
        reason = (
            f'"{chain}" may nest more than {store.max_nested_rows} rows: '
            "ask for fewer levels, or for fewer items with limit and deep[…][_limit]"
        )
        raise invalid_query(reason, parameter="fields", chain=chain)


def _estimator(asked: Asked, values: list[object], planner: Planner) -> Callable[[], Estimate]:
    def estimate() -> Estimate:
        _analyze(asked.statement.touched, planner)
        rows = planner.explain(f"EXPLAIN (FORMAT JSON) {asked.statement.text}", values)
        plan: Any = jsontext.loads(jsontext.dumps(rows[0][0]))
        nesting = asked.statement.nesting
        assert nesting
        heaviest = heaviest_rows(nesting, asked.literals, _longest_lists(nesting, planner))
        return replace(estimate_of(plan), heaviest=heaviest)

    return estimate


def _longest_lists(nesting: Level, planner: Planner) -> dict[tuple[str, str], float]:
    """Return how many rows hold the commonest value of each column that lists go by."""
    columns = sorted(columns_of(nesting))
    tables, names = [table for table, _ in columns], [name for _, name in columns]
    rows = planner.explain(statement("find_longest_lists"), [array(tables), array(names)])
    return {(str(table), str(column)): float(length) for table, column, length in rows}


def _analyze(collections: frozenset[str], planner: Planner) -> None:
    """Have PostgreSQL look at tables that it has not seen as they are: of those it expects a few rows for each parent.

    It does so by itself, but not before the next minute, and not for a table of less than fifty rows.
    """
    tables = [_Table(*row) for row in planner.explain(statement("find_statistics"), [array(sorted(collections))])]
    unseen = [table for table in tables if table.unseen] + _grown(tables, planner)
    if unseen:
        try:
            planner.analyze(concat("ANALYZE (SKIP_LOCKED) ", commas(table.printed for table in unseen)))
        except Refused:
            return  # the estimate is as good as without it


@dataclass(frozen=True, slots=True)
class _Table:
    schema: str
    name: str
    rows: float
    size: int
    unseen: bool

    @property
    def printed(self) -> Fragment:
        return concat(name(self.schema), ".", name(self.name))


def _grown(tables: Sequence[_Table], planner: Planner) -> list[_Table]:
    """Return the small tables that hold more rows than PostgreSQL knows of: it counts changes a second later."""
    small = [table for table in tables if not table.unseen and table.size <= SMALL]
    if not small:
        return []
    counts = (fill("(SELECT count(*) FROM {0})", table.printed) for table in small)
    text, values = concat("SELECT ", commas(counts)).numbered()
    (numbers,) = planner.explain(text, values)
    return [table for table, number in zip(small, numbers, strict=True) if number > 10 + 1.1 * table.rows]
