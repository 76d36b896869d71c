"""The printer of a page by relevance: it ranks all rows that are found only where it has to.

Most pages are full of rows that fit best, which are equal in relevance, so that indexes find them
and their order. Where these do not fill the page, all rows that are found are ranked.

A sample tells what is tried first. Where it has many of the best, the rows are read in their order
until the page is full; where it has some, and more that fit less, an index of the searched fields
finds the best. PostgreSQL's own estimate does not decide: it compares the word with a hundred
values of a column, and can be wrong by a hundred times.

An index of words needs no sign in the sample, because it leads to the best alone. Then it leads to
the rows in which each word is a whole one: they come before all others.
"""

from __future__ import annotations

from cms.fragment import EMPTY, Fragment, concat, fill, name, optional, param, text
from cms.query.plan.best_matches import best_relevance
from cms.query.plan.read_plan import All, AnyOf, Order, Predicate, ReadPlan, SearchMatch
from cms.query.sql.clauses import conditions, order_by, row_limit, rows_up_to_limit
from cms.query.sql.expressions import predicate
from cms.query.sql.keyset import behind

SAMPLE_BYTES = 40 * 8192
"""How much of a table is looked at for some of the best rows: a thousand short ones."""

LARGE_BYTES = 16 * 2**20
"""Size of a table from which ranking everything may take longer than looking at the sample."""

EXPECTED_ROWS = 20_000
"""Within how many rows the sample must promise a page: more than these, an index is quicker."""

COST_IN_ORDER = 2
"""What a row costs that is read in order, where one that an index of words finds costs 1."""

MAX_ROWS_IN_ORDER = 30_000
"""How many rows are read in order: where the best come late, this is what was in vain."""

# No collection has these names. UNION ALL may give rows in any order: they are sorted outside. What
# decides whether a part is read stands outside of it: within, PostgreSQL might start a parallel
# worker first, which takes ten milliseconds.
_BEST_OR_ALL = (
    "(WITH system_sample AS MATERIALIZED ({0}), {1} SELECT * FROM {2} WHERE {3} "
    "UNION ALL SELECT t0.* FROM (SELECT t0.* FROM {4} AS t0{5}) AS t0 WHERE NOT {3}) AS t0"
)
_BEST_OR_WHOLE = (
    "{0}, system_whole AS MATERIALIZED (SELECT * FROM system_best WHERE {1} "
    "UNION ALL SELECT t0.* FROM (SELECT t0.* FROM {2} AS t0{3}) AS t0 WHERE NOT {1})"
)
# A sample of 0 percent has no rows.
_SAMPLED = (
    "{0} AS t0 TABLESAMPLE SYSTEM ((SELECT CASE WHEN bytes > {2} "
    "THEN {3}.0 / bytes ELSE 0 END FROM pg_relation_size(quote_ident({1})::regclass) AS bytes))"
)
_SAMPLE = (
    "SELECT count(*) AS looked_at, count(*) FILTER ({1}) AS best, "
    "pg_relation_size(quote_ident({2})::regclass) AS bytes FROM {0}"
)
# The inner LIMIT keeps PostgreSQL from choosing another way to these rows.
_IN_ORDER = (
    "SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1}{2} LIMIT {3}) AS t0{4}) "
    "AS t0{5}"
)
_BY_INDEX = (
    "SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1}{2}) AS t0{3}) AS t0{4}"
)
_IN_ORDER_OR_BY_INDEX = (
    "system_first AS MATERIALIZED ({0}), system_best AS MATERIALIZED ("
    "SELECT * FROM system_first WHERE {1} UNION ALL {2})"
)
_IS_FREQUENT = "(SELECT best * {0} > looked_at * {1} FROM system_sample)"
# An index of words reads all of the best: as many as the sample promises for the whole table. In
# order, rows are read until a page of the best is full. These products are too large for a bigint.
_IS_QUICKER_IN_ORDER = (
    "(SELECT best::float8 * best * bytes > looked_at::float8 * {0} * {1} * {2} FROM system_sample)"
)
# A word that few rows hold is not looked for twice; neither is one that is mostly among the best,
# where ranking everything is as quick. This has a sample of its own, taken where some are the best.
_IS_SELECTIVE = "(SELECT best > 0 AND best * 2 <= (SELECT count(*) FROM {0}{1}) FROM system_sample)"
_IS_PAGE = "(SELECT count(*) FROM {0}) = {1}"


def best_first(plan: ReadPlan) -> Fragment:
    """Print rows among which are the first ones of an order by relevance, up to the page's end."""
    assert plan.best is not None
    terms = plan.cursor.terms if plan.cursor else ()
    starts = plan.cursor.starts if plan.cursor else ()
    all_behind = behind(terms, starts) if starts else EMPTY
    first = _best_of_page(plan)
    part = "system_best"
    if plan.whole is not None:
        first = fill(
            _BEST_OR_WHOLE,
            first,
            _is_page(part, plan),
            name(plan.collection.name),
            _ranked(plan, all_behind, plan.whole),
        )
        part = "system_whole"
    return fill(
        _BEST_OR_ALL,
        _sample(plan),
        first,
        text(part),
        _is_page(part, plan),
        name(plan.collection.name),
        _ranked(plan, all_behind, plan.where),
    )


def _ranked(plan: ReadPlan, all_behind: Fragment, where: Predicate) -> Fragment:
    """Print the conditions of rows that are ranked, and which of them are read."""
    page_conditions = conditions(all_behind, predicate(plan.allowed, 0), predicate(where, 0))
    return concat(page_conditions, order_by(plan.order, 0), rows_up_to_limit(plan.page))


def _sample(plan: ReadPlan) -> Fragment:
    table = param(plan.collection.name, "text")
    return fill(_SAMPLE, _sampled(plan), conditions(*_best(plan)), table)


def _sampled(plan: ReadPlan) -> Fragment:
    return fill(
        _SAMPLED,
        name(plan.collection.name),
        param(plan.collection.name, "text"),
        text(str(LARGE_BYTES)),
        text(str(100 * SAMPLE_BYTES)),
    )


def _best_of_page(plan: ReadPlan) -> Fragment:
    """Print a page of the best rows, or fewer where they do not fill it or are not worth a look."""
    if not _has_order_index(plan.order[1]):
        return fill("system_best AS MATERIALIZED ({0})", _by_index(plan, EMPTY))
    is_page = _is_page("system_first", plan)
    other = fill("NOT {0}", is_page)
    return fill(_IN_ORDER_OR_BY_INDEX, _in_order(plan), is_page, _by_index(plan, other))


def _in_order(plan: ReadPlan) -> Fragment:
    later = order_by(plan.order[1:], 0)
    return fill(
        _IN_ORDER,
        name(plan.collection.name),
        conditions(_best_behind(plan)),
        later,
        text(str(MAX_ROWS_IN_ORDER)),
        concat(conditions(*_best(plan)), later, rows_up_to_limit(plan.page)),
        conditions(_fits_best(plan), _is_worth_reading_in_order(plan)),
    )


def _is_worth_reading_in_order(plan: ReadPlan) -> Fragment:
    rows = text(str(row_limit(plan.page)))
    if plan.best_by_words is None:
        return fill(_IS_FREQUENT, text(str(EXPECTED_ROWS)), rows)
    return fill(_IS_QUICKER_IN_ORDER, rows, text(str(COST_IN_ORDER)), text(str(SAMPLE_BYTES)))


def _by_index(plan: ReadPlan, when: Fragment) -> Fragment:
    by_words = plan.best_by_words
    best = by_words or plan.best
    assert best is not None
    # The OFFSET keeps PostgreSQL from reading them in order. Without an index it had better do so.
    is_short = all(matches[0].is_short for matches in _words(plan))
    fence = optional(" OFFSET 0", when=by_words is not None or not is_short)
    return fill(
        _BY_INDEX,
        name(plan.collection.name),
        conditions(_best_behind(plan), predicate(plan.allowed, 0), predicate(best, 0)),
        fence,
        concat(order_by(plan.order[1:], 0), rows_up_to_limit(plan.page)),
        conditions(_fits_best(plan), when, EMPTY if by_words is not None else _is_selective(plan)),
    )


def _best(plan: ReadPlan) -> tuple[Fragment, Fragment]:
    assert plan.best is not None
    return predicate(plan.allowed, 0), predicate(plan.best, 0)


def _is_selective(plan: ReadPlan) -> Fragment:
    """Print that the best are few among the rows that have each word themselves."""
    # What related items have counts nothing.
    has_each_word = predicate(All(tuple(map(AnyOf, _words(plan)))), 0)
    condition = conditions(predicate(plan.allowed, 0), has_each_word)
    return fill(_IS_SELECTIVE, _sampled(plan), condition)


def _words(plan: ReadPlan) -> tuple[tuple[SearchMatch, ...], ...]:
    relevance = plan.order[0].value.relevance
    assert relevance is not None
    return relevance.words


def _best_behind(plan: ReadPlan) -> Fragment:
    """Print that a row comes behind the page before: those equal in relevance, by later terms."""
    if not plan.cursor or not plan.cursor.starts:
        return EMPTY
    return behind(plan.cursor.terms[1:], plan.cursor.starts[1:])


def _fits_best(plan: ReadPlan) -> Fragment:
    """Print that the page begins behind a row that fits best: behind others there is none."""
    if not plan.cursor or not plan.cursor.starts:
        return EMPTY
    first = plan.order[0].value
    start = plan.cursor.starts[0]
    assert first.relevance is not None and start is not None
    best = text(str(best_relevance(first.relevance)))
    return fill("{0} = {1}", param(start, first.cast), best)


def _is_page(part: str, plan: ReadPlan) -> Fragment:
    return fill(_IS_PAGE, text(part), text(str(row_limit(plan.page))))


def _has_order_index(term: Order) -> bool:
    """Tell whether an index has the rows in the order of a term."""
    value = term.value
    column = value.field.column
    if term.path or value.is_computed or value.when is not None or column is None:
        return False
    return column.is_primary_key or column.is_indexed or column.is_unique
