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

from dataclasses import replace

from cms.fragment import EMPTY, Fragment, concat, fill, name, optional, text
from cms.query.plan.best_matches import best_relevance
from cms.query.plan.read_plan import Order, Predicate, ReadPlan
from cms.query.sql.clauses import conditions, order_by, rows_up_to_limit
from cms.query.sql.expressions import predicate
from cms.query.sql.keyset import behind
from cms.query.sql.relevance_page import (
    behind_equals,
    has_order_index,
    in_order,
    is_page,
    start_relevance,
)
from cms.query.sql.relevance_sample import (
    is_frequent,
    is_quicker_in_order,
    is_selective,
    sample,
    searched_words,
)
from cms.query.sql.relevant_parts import with_parts

COST_IN_ORDER = 2
"""What a row costs that is read in order, where one that an index of words finds costs 1."""

# No collection has these names. UNION ALL may give rows in any order: they are sorted outside. What
# decides whether a part is read stands outside of it: within, PostgreSQL might start a parallel
# worker first, which takes ten milliseconds.
_BEST_FIRST = "(WITH {0}, {1} {2}) AS t0"
_BEST_OR_ALL = (
    "SELECT * FROM {0} WHERE {1} "
    "UNION ALL SELECT t0.* FROM (SELECT t0.* FROM {2} AS t0{3}) AS t0 WHERE NOT {1}"
)
_BEST_OR_WHOLE = (
    "{0}, system_whole AS MATERIALIZED (SELECT * FROM system_best WHERE {1} "
    "UNION ALL SELECT t0.* FROM (SELECT t0.* FROM {2} AS t0{3}) AS t0 WHERE NOT {1})"
)
_BY_INDEX = (
    "SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1}{2}) AS t0{3}) AS t0{4}"
)
_IN_ORDER_OR_BY_INDEX = (
    "system_first AS MATERIALIZED ({0}), system_best AS MATERIALIZED ("
    "SELECT * FROM system_first WHERE {1} UNION ALL {2})"
)


def best_first(plan: ReadPlan) -> Fragment:
    """Print rows among which are the first ones of an order by relevance, up to the page's end."""
    assert plan.best is not None
    first = _best_of_page(plan)
    part = "system_best"
    if plan.whole is not None:
        first = fill(
            _BEST_OR_WHOLE,
            first,
            is_page(part, plan),
            name(plan.collection.name),
            _whole_ranked(plan, plan.whole),
        )
        part = "system_whole"
    if plan.parts is not None:
        first = concat(first, ", ", with_parts(plan, plan.parts, part))
        part = "system_parts"
    if plan.parts is not None and plan.parts.by_index is not None and plan.parts.are_all:
        rows = text("SELECT * FROM system_parts")
    else:
        rows = fill(
            _BEST_OR_ALL,
            text(part),
            is_page(part, plan),
            name(plan.collection.name),
            _ranked(plan, plan.where),
        )
    return fill(_BEST_FIRST, sample(plan), first, rows)


def _ranked(plan: ReadPlan, where: Predicate) -> Fragment:
    """Print the conditions of rows that are ranked, and which of them are read."""
    terms = plan.cursor.terms if plan.cursor else ()
    starts = plan.cursor.starts if plan.cursor else ()
    all_behind = behind(terms, starts) if starts else EMPTY
    page_conditions = conditions(all_behind, predicate(plan.allowed, 0), predicate(where, 0))
    return concat(page_conditions, order_by(plan.order, 0), rows_up_to_limit(plan.page))


def _whole_ranked(plan: ReadPlan, whole: Predicate) -> Fragment:
    """Print the same for rows with whole words: the texts that count least need no comparison."""
    order = tuple(map(_of_whole_words, plan.order))
    cursor = plan.cursor
    if cursor is not None:
        cursor = replace(cursor, terms=tuple(map(_of_whole_words, cursor.terms)))
    return _ranked(replace(plan, order=order, cursor=cursor), whole)


def _of_whole_words(term: Order) -> Order:
    relevance = term.value.relevance
    if relevance is None:
        return term
    of_whole_words = replace(relevance, are_whole=True)
    return replace(term, value=replace(term.value, relevance=of_whole_words))


def _best_of_page(plan: ReadPlan) -> Fragment:
    """Print a page of the best rows, or fewer where they do not fill it or are not worth a look."""
    if not has_order_index(plan.order[1]):
        return fill("system_best AS MATERIALIZED ({0})", _by_index(plan, EMPTY))
    is_full = is_page("system_first", plan)
    other = fill("NOT {0}", is_full)
    return fill(_IN_ORDER_OR_BY_INDEX, _best_in_order(plan), is_full, _by_index(plan, other))


def _best_in_order(plan: ReadPlan) -> Fragment:
    assert plan.best is not None
    best = conditions(predicate(plan.allowed, 0), predicate(plan.best, 0))
    if plan.best_by_words is None:
        is_soon = is_frequent(plan)
    else:
        is_soon = is_quicker_in_order(plan, "best", COST_IN_ORDER)
    return in_order(
        plan,
        behind_equals(plan),
        page=concat(best, order_by(plan.order[1:], 0), rows_up_to_limit(plan.page)),
        when=conditions(_fits_best(plan), is_soon),
    )


def _by_index(plan: ReadPlan, when: Fragment) -> Fragment:
    by_words = plan.best_by_words
    best = by_words or plan.best
    assert best is not None
    # The OFFSET keeps PostgreSQL from reading them in order. Without an index it had better do so.
    is_short = all(matches[0].is_short for matches in searched_words(plan))
    fence = optional(" OFFSET 0", when=by_words is not None or not is_short)
    return fill(
        _BY_INDEX,
        name(plan.collection.name),
        conditions(behind_equals(plan), predicate(plan.allowed, 0), predicate(best, 0)),
        fence,
        concat(order_by(plan.order[1:], 0), rows_up_to_limit(plan.page)),
        conditions(_fits_best(plan), when, EMPTY if by_words is not None else is_selective(plan)),
    )


def _fits_best(plan: ReadPlan) -> Fragment:
    """Print that the page begins behind a row that fits best: behind others there is none."""
    start = start_relevance(plan)
    if start is None:
        return EMPTY
    relevance = plan.order[0].value.relevance
    assert relevance is not None
    return fill("{0} = {1}", start, text(str(best_relevance(relevance))))
