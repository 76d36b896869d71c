"""The sample of a table that tells how a page by relevance is read.

A part of the table's blocks is looked at for rows that fit best, and for those with a part of a
word. In a small table it has no rows, and promises nothing.
"""

from __future__ import annotations

from cms.fragment import Fragment, fill, name, param, text
from cms.query.plan.read_plan import All, AnyOf, ReadPlan, SearchMatch
from cms.query.sql.clauses import conditions, row_limit
from cms.query.sql.expressions import predicate

SAMPLE_BYTES = 40 * 8192
"""How much of a table is looked at for some of the best rows: a thousand short ones."""

LONG_TEXTS = 8
"""How many times as much may be read for the sample of long texts, which stand beside the table."""

MIN_KEPT = 0.05
"""The least part of the sampled rows that is looked at: what is long may not be searched."""

LARGE_BYTES = 16 * 2**20
"""Size of a table from which ranking everything may take longer than looking at the sample."""

EXPECTED_ROWS = 20_000
"""Within how many rows the sample must promise a page: more than these, an index is quicker."""

_SAMPLE_OF_TABLE = "system_size AS MATERIALIZED ({0}), system_sample AS MATERIALIZED ({1})"
# A block has many rows if their texts are stored elsewhere: then only a part of them is looked at.
_SIZE = (
    "SELECT bytes, CASE WHEN bytes * {1} < all_bytes "
    "THEN GREATEST({2}, bytes * {1}::float8 / all_bytes) ELSE 1 END AS kept "
    "FROM (SELECT pg_relation_size(class) AS bytes, pg_table_size(class) AS all_bytes "
    "FROM CAST(quote_ident({0}) AS regclass) AS class) AS sizes"
)
# A sample of 0 percent has no rows.
_SAMPLED = (
    "{0} AS t0 TABLESAMPLE SYSTEM ((SELECT CASE WHEN bytes > {1} "
    "THEN {2}.0 / bytes ELSE 0 END FROM system_size))"
)
# The first part of it is there to save time.
_IS_KEPT = text("((SELECT kept = 1 FROM system_size) OR random() < (SELECT kept FROM system_size))")
_SAMPLE = "SELECT count(*) AS looked_at, count(*) FILTER ({1}) AS best FROM {0}{2}"
# Only rows with parts are searched for whole words, once. The OFFSET keeps that in its place.
_SAMPLE_OF_PARTS = (
    "SELECT count(*) AS looked_at, count(best) AS parts, count(*) FILTER (WHERE best) AS best "
    "FROM (SELECT CASE WHEN {1} AND {2} THEN ({0}) IS TRUE END AS best FROM {3}{4} OFFSET 0) AS t0"
)
_IS_FREQUENT = "(SELECT best * {0} * kept > looked_at * {1} FROM system_sample, system_size)"
# An index of words reads all of the best: as many as the sample promises for the whole table. In
# order, rows are read until a page of the best is full. These products are too large for a bigint.
_IS_QUICKER_IN_ORDER = (
    "(SELECT {0}::float8 * {0} * bytes > looked_at::float8 * {1} * {2} * {3} * kept "
    "FROM system_sample, system_size)"
)
# A word that few rows hold is not looked for twice; neither is one that is mostly among the best,
# where ranking everything is as quick. This has a sample of its own, taken where some are the best.
_IS_SELECTIVE = "(SELECT best > 0 AND best * 2 <= (SELECT count(*) FROM {0}{1}) FROM system_sample)"


def sample(plan: ReadPlan) -> Fragment:
    """Print the size of the table, and how many of its sampled rows fit best or have a part."""
    return fill(_SAMPLE_OF_TABLE, _size(plan), _counted(plan))


def _counted(plan: ReadPlan) -> Fragment:
    assert plan.best is not None
    allowed = predicate(plan.allowed, 0)
    best = predicate(plan.best, 0)
    kept = conditions(_IS_KEPT)
    if plan.parts is None:
        return fill(_SAMPLE, _sampled(plan), conditions(allowed, best), kept)
    has_part = predicate(plan.parts.where, 0)
    return fill(_SAMPLE_OF_PARTS, best, allowed, has_part, _sampled(plan), kept)


def _sampled(plan: ReadPlan) -> Fragment:
    return fill(
        _SAMPLED,
        name(plan.collection.name),
        text(str(LARGE_BYTES)),
        text(str(100 * SAMPLE_BYTES)),
    )


def _size(plan: ReadPlan) -> Fragment:
    table = param(plan.collection.name, "text")
    return fill(_SIZE, table, text(str(LONG_TEXTS)), text(str(MIN_KEPT)))


def is_frequent(plan: ReadPlan) -> Fragment:
    """Print that the sample promises a page of the best within `EXPECTED_ROWS`."""
    return fill(_IS_FREQUENT, text(str(EXPECTED_ROWS)), text(str(row_limit(plan.page))))


def is_quicker_in_order(plan: ReadPlan, rows: str, cost: float) -> Fragment:
    """Print that rows, `best` or `parts`, are found sooner in order than all by an index.

    `cost` is what a row costs in order, where one that the index finds costs 1.
    """
    numbers = row_limit(plan.page), cost, SAMPLE_BYTES
    return fill(_IS_QUICKER_IN_ORDER, text(rows), *(text(str(number)) for number in numbers))


def is_selective(plan: ReadPlan) -> Fragment:
    """Print that the best are few among the rows that have each word themselves."""
    # What related items have counts nothing.
    has_each_word = predicate(All(tuple(map(AnyOf, searched_words(plan)))), 0)
    condition = conditions(_IS_KEPT, predicate(plan.allowed, 0), has_each_word)
    return fill(_IS_SELECTIVE, _sampled(plan), condition)


def searched_words(plan: ReadPlan) -> tuple[tuple[SearchMatch, ...], ...]:
    """Return the tests of each word of the search."""
    relevance = plan.order[0].value.relevance
    assert relevance is not None
    return relevance.words
