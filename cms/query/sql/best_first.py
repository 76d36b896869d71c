"""The printer of a page by relevance: it ranks all rows that are found only where it has to.

Most pages are full of rows that fit best, which are equal in relevance, so that indexes find them
and their order. Where these do not fill the page, all rows that are found are ranked.

A sample tells what is tried first. Where it has many of the best, the rows are read in their order
until the page is full; where it has some, and more that fit less, an index of the searched fields
finds the best. PostgreSQL's own estimate does not decide: it compares the word with a hundred
values of a column, and can be wrong by a hundred times.

An index of words needs no sign in the sample, because it leads to the best alone. Then it leads to
the rows in which each word is a whole one: they come before all others. If it finds less than a
page for a single word, those come next that have it as a part in a field that counts most. They are
equal in relevance as well, and so are read in their order or found by an index without ranking.
"""

from __future__ import annotations

from collections.abc import Iterator

from cms.fragment import EMPTY, Fragment, concat, fill, join, name, optional, param, text
from cms.query.plan.best_matches import best_relevance
from cms.query.plan.read_plan import All, AnyOf, Order, PartRows, Predicate, ReadPlan, SearchMatch
from cms.query.sql.clauses import conditions, order_by, row_limit, rows_up_to_limit
from cms.query.sql.expressions import expression, predicate
from cms.query.sql.keyset import behind

SAMPLE_BYTES = 40 * 8192
"""How much of a table is looked at for some of the best rows: a thousand short ones."""

LARGE_BYTES = 16 * 2**20
"""Size of a table from which ranking everything may take longer than looking at the sample."""

EXPECTED_ROWS = 20_000
"""Within how many rows the sample must promise a page: more than these, an index is quicker."""

COST_IN_ORDER = 2
"""What a row costs that is read in order, where one that an index of words finds costs 1."""

COST_OF_PART_IN_ORDER = 0.5
"""The same, where a row that is found by a part of a word costs 1."""

MAX_ROWS_IN_ORDER = 30_000
"""How many rows are read in order: where the best come late, this is what was in vain."""

# No collection has these names. UNION ALL may give rows in any order: they are sorted outside. What
# decides whether a part is read stands outside of it: within, PostgreSQL might start a parallel
# worker first, which takes ten milliseconds.
_BEST_FIRST = "(WITH system_sample AS MATERIALIZED ({0}), {1} {2}) AS t0"
_BEST_OR_ALL = (
    "SELECT * FROM {0} WHERE {1} "
    "UNION ALL SELECT t0.* FROM (SELECT t0.* FROM {2} AS t0{3}) AS t0 WHERE NOT {1}"
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
# Only rows with parts are searched for whole words, once. The OFFSET keeps that in its place.
_SAMPLE_OF_PARTS = (
    "SELECT count(*) AS looked_at, count(best) AS parts, count(*) FILTER (WHERE best) AS best, "
    "pg_relation_size(quote_ident({3})::regclass) AS bytes "
    "FROM (SELECT CASE WHEN {1} AND {2} THEN ({0}) IS TRUE END AS best FROM {4} OFFSET 0) AS t0"
)
# The inner LIMIT keeps PostgreSQL from choosing another way to these rows.
_IN_ORDER = (
    "SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1}{2} LIMIT {3}) AS t0{4}) "
    "AS t0{5}"
)
_BY_INDEX = (
    "SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1}{2}) AS t0{3}) AS t0{4}"
)
# Only the rows of one page are searched for the whole word, where that is enough.
_PARTS_BY_INDEX = (
    "SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1} OFFSET 0) "
    "AS t0{2}) AS t0{3}) AS t0{4}"
)
_IN_ORDER_OR_BY_INDEX = (
    "system_first AS MATERIALIZED ({0}), system_best AS MATERIALIZED ("
    "SELECT * FROM system_first WHERE {1} UNION ALL {2})"
)
_IS_FREQUENT = "(SELECT best * {0} > looked_at * {1} FROM system_sample)"
# An index of words reads all of the best: as many as the sample promises for the whole table. In
# order, rows are read until a page of the best is full. These products are too large for a bigint.
_IS_QUICKER_IN_ORDER = (
    "(SELECT {0}::float8 * {0} * bytes > looked_at::float8 * {1} * {2} * {3} FROM system_sample)"
)
# A word that few rows hold is not looked for twice; neither is one that is mostly among the best,
# where ranking everything is as quick. This has a sample of its own, taken where some are the best.
_IS_SELECTIVE = "(SELECT best > 0 AND best * 2 <= (SELECT count(*) FROM {0}{1}) FROM system_sample)"
_IS_PAGE = "(SELECT count(*) FROM {0}) >= {1}"


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
    if plan.parts is not None:
        first = concat(first, ", ", _with_parts(plan, plan.parts, part))
        part = "system_parts"
    if plan.parts is not None and plan.parts.by_index is not None and plan.parts.are_all:
        rows = text("SELECT * FROM system_parts")
    else:
        rows = fill(
            _BEST_OR_ALL,
            text(part),
            _is_page(part, plan),
            name(plan.collection.name),
            _ranked(plan, all_behind, plan.where),
        )
    return fill(_BEST_FIRST, _sample(plan), first, rows)


def _ranked(plan: ReadPlan, all_behind: Fragment, where: Predicate) -> Fragment:
    """Print the conditions of rows that are ranked, and which of them are read."""
    page_conditions = conditions(all_behind, predicate(plan.allowed, 0), predicate(where, 0))
    return concat(page_conditions, order_by(plan.order, 0), rows_up_to_limit(plan.page))


def _sample(plan: ReadPlan) -> Fragment:
    table = param(plan.collection.name, "text")
    allowed, best = _best(plan)
    if plan.parts is None:
        return fill(_SAMPLE, _sampled(plan), conditions(allowed, best), table)
    has_part = predicate(plan.parts.where, 0)
    return fill(_SAMPLE_OF_PARTS, best, allowed, has_part, table, _sampled(plan))


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
    if plan.best_by_words is None:
        rows = text(str(row_limit(plan.page)))
        return fill(_IS_FREQUENT, text(str(EXPECTED_ROWS)), rows)
    return _is_quicker_in_order(plan, "best", COST_IN_ORDER)


def _is_quicker_in_order(plan: ReadPlan, rows: str, cost: float) -> Fragment:
    numbers = row_limit(plan.page), cost, SAMPLE_BYTES
    return fill(_IS_QUICKER_IN_ORDER, text(rows), *(text(str(number)) for number in numbers))


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


def _start(plan: ReadPlan) -> Fragment | None:
    """Print the relevance of the row that the page begins behind; None on the first page."""
    if not plan.cursor or not plan.cursor.starts:
        return None
    start = plan.cursor.starts[0]
    assert start is not None
    return param(start, plan.order[0].value.cast)


def _best_behind(plan: ReadPlan) -> Fragment:
    """Print that a row comes behind the page before: those equal in relevance, by later terms."""
    if not plan.cursor or not plan.cursor.starts:
        return EMPTY
    return behind(plan.cursor.terms[1:], plan.cursor.starts[1:])


def _fits_best(plan: ReadPlan) -> Fragment:
    """Print that the page begins behind a row that fits best: behind others there is none."""
    start = _start(plan)
    if start is None:
        return EMPTY
    relevance = plan.order[0].value.relevance
    assert relevance is not None
    return fill("{0} = {1}", start, text(str(best_relevance(relevance))))


def _is_page(part: str, plan: ReadPlan) -> Fragment:
    return fill(_IS_PAGE, text(part), text(str(row_limit(plan.page))))


def _has_order_index(term: Order) -> bool:
    """Tell whether an index has the rows in the order of a term."""
    value = term.value
    column = value.field.column
    if term.path or value.is_computed or value.when is not None or column is None:
        return False
    return column.is_primary_key or column.is_indexed or column.is_unique


# Parts of words


def _with_parts(plan: ReadPlan, parts: PartRows, whole: str) -> Fragment:
    """Print the rows with a whole word, and where these are no page, one of those with parts."""
    rows = [fill("SELECT * FROM {0}", text(whole))]
    is_needed = fill("NOT {0}", _is_page(whole, plan))
    ordered = EMPTY
    if _has_order_index(plan.order[1]):
        is_page = _is_page("system_ordered", plan)
        in_order = join(" UNION ALL ", _parts_in_order(plan, parts, is_needed))
        ordered = fill("system_ordered AS MATERIALIZED ({0}), ", in_order)
        rows.append(fill("SELECT * FROM system_ordered WHERE {0}", is_page))
        is_needed = fill("{0} AND NOT {1}", is_needed, is_page)
    if parts.by_index is not None:
        rows.extend(_parts_by_index(plan, parts, parts.by_index, is_needed))
    return fill("{0}system_parts AS MATERIALIZED ({1})", ordered, join(" UNION ALL ", rows))


def _parts_in_order(plan: ReadPlan, parts: PartRows, is_needed: Fragment) -> Iterator[Fragment]:
    has_part = predicate(plan.allowed, 0), predicate(parts.where, 0)
    is_quicker = _is_quicker_in_order(plan, "parts", COST_OF_PART_IN_ORDER)
    for beginning, is_behind in _beginnings(plan, parts):
        yield fill(
            _IN_ORDER,
            name(plan.collection.name),
            conditions(beginning),
            order_by(plan.order[1:], 0),
            text(str(MAX_ROWS_IN_ORDER)),
            _page_of_parts(plan, parts, *has_part),
            conditions(is_behind, is_needed, is_quicker),
        )


def _parts_by_index(
    plan: ReadPlan, parts: PartRows, by_index: Predicate, is_needed: Fragment
) -> Iterator[Fragment]:
    first = EMPTY
    if _start(plan) is None:
        # Those with the whole word are all in the table before, and fill the page with the others.
        first = concat(order_by(plan.order[1:], 0), rows_up_to_limit(plan.page))
    for beginning, is_behind in _beginnings(plan, parts):
        yield fill(
            _PARTS_BY_INDEX,
            name(plan.collection.name),
            conditions(beginning, predicate(plan.allowed, 0), predicate(by_index, 0)),
            first,
            _page_of_parts(plan, parts),
            conditions(is_behind, is_needed),
        )


def _beginnings(plan: ReadPlan, parts: PartRows) -> list[tuple[Fragment, Fragment]]:
    """Return behind what parts are read, and when: behind whole words, the first parts come."""
    start = _start(plan)
    if start is None:
        return [(EMPTY, EMPTY)]
    relevance = text(str(parts.relevance))
    return [
        (_best_behind(plan), fill("{0} = {1}", start, relevance)),
        (EMPTY, fill("{0} > {1}", start, relevance)),
    ]


def _page_of_parts(plan: ReadPlan, parts: PartRows, *has_part: Fragment) -> Fragment:
    """Print a page of the rows that have parts, but not the whole word."""
    relevance = expression(plan.order[0].value, 0)
    counts_as_part = fill("{0} = {1}", relevance, text(str(parts.relevance)))
    later = order_by(plan.order[1:], 0)
    return concat(conditions(*has_part, counts_as_part), later, rows_up_to_limit(plan.page))
