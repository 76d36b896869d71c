"""Query parameters to the tree of a query (docs/query-language.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from cms.errors import MAX_PROBLEMS, Problem, Refused, combined, invalid_query
from cms.query.language.ast import (
    EVERYTHING,
    Aggregate,
    AnyPick,
    CursorPage,
    Filter,
    ParsedQuery,
    Pick,
    Query,
    SearchWord,
    SortTerm,
    Star,
    Window,
)
from cms.query.language.limits import LimitExceeded
from cms.query.language.literals import Literals
from cms.query.language.paging import WINDOW_MINIMUMS, PageSizes
from cms.query.language.parameters import (
    EVERY_FIELD,
    Params,
    counts_of,
    field_paths,
    group_of,
    integer_of,
)
from cms.query.language.query_parser import LEVEL_PARAMETERS, QueryParser, at_level
from cms.query.language.query_strings import nested_params
from cms.schema.names import FieldName, FieldPath

PARAMETERS = frozenset({"fields", "meta", "deep", "highlight", *LEVEL_PARAMETERS})

_NAMING_PARAMETERS = ("alias", "deep", "aggregate", "group")
"""Parameters that decide what the names in others mean."""

T = TypeVar("T")


def parse_answer(params: Params, page: PageSizes, *, of_one_item: bool) -> ParsedQuery:
    """Parse what shapes the answer of a write, which is a single item or several."""
    nested_page = page.of_one_item if of_one_item else page
    parsed = parse(params, page, nested_page=nested_page)
    return replace(parsed, of_one_item=of_one_item)


def parse_query_string(
    query_string: str, page: PageSizes, *, of_one_item: bool = False
) -> ParsedQuery:
    """Parse the query string of a write."""
    return parse_answer(nested_params(query_string), page, of_one_item=of_one_item)


def parse(
    params: Params,
    page: PageSizes,
    *,
    nested_page: PageSizes | None = None,
    takes_cursor: bool = False,
) -> ParsedQuery:
    """Parse parameters: nested dicts of a query string, or the `query` of a SEARCH body.

    `nested_page` is the page of the levels below, when it is another. With `takes_cursor` the page
    may have a cursor; elsewhere `page[after]` is refused. Unknown parameters are
    ignored; a wrong value of a known one raises `Refused` INVALID_QUERY.
    """
    try:
        return _parse(params, page, nested_page or page, takes_cursor=takes_cursor)
    except RecursionError:
        raise invalid_query("It is nested too deeply", parameter="deep") from None


def _parse(
    params: Params, page: PageSizes, nested_page: PageSizes, *, takes_cursor: bool
) -> ParsedQuery:
    literals = Literals()
    try:
        # One attempt that stops at the first problem: nearly all requests have none, and pay
        # nothing for the report of all of them.
        query = QueryParser(literals, page, nested_page, takes_cursor).query(
            params, field_paths(params), group_of(params, "deep")
        )
    except LimitExceeded:
        raise  # a request that asks for too much is not read a second time
    except Refused as refused:
        raise _every_refusal(params, page, takes_cursor=takes_cursor, first=refused) from None
    return ParsedQuery(query, tuple(literals.values))


class UnreadableParameters(Refused):
    """Parameters that cannot be read; `rest` is the query of the others.

    It is None where the others mean nothing without the wrong ones.
    """

    def __init__(self, problems: Sequence[Problem], rest: ParsedQuery | None) -> None:
        super().__init__(problems)
        self.rest = rest


def _every_refusal(
    params: Params, page: PageSizes, *, takes_cursor: bool, first: Refused
) -> UnreadableParameters:
    """Return all problems of the parameters: they are read again, each by itself."""
    problems: list[Problem] = []
    collector = _ProblemCollector(Literals(), page, page, takes_cursor, problems)
    # Named for its type: mypy would infer a list of tuples of one element, which is another type.
    all_fields: list[FieldPath] = [EVERY_FIELD]
    paths = collector.attempt(lambda: field_paths(params), all_fields)
    query = collector.query(params, paths, collector.attempt(lambda: group_of(params, "deep"), {}))
    # The second pass may find nothing, for a check that only the first makes; then the first
    # refusal is the report.
    different = combined(problems or first.problems).problems
    # Without its aliases or levels a name may mean another field, so names are not checked.
    for problem in different:
        if str(problem.extensions.get("parameter")).startswith(_NAMING_PARAMETERS):
            return UnreadableParameters(different, None)
    rest = ParsedQuery(query, tuple(collector.literals.values))
    return UnreadableParameters(different, rest)


@dataclass(frozen=True, slots=True)
class _ProblemCollector(QueryParser):
    """Parses all parameters of a query, and keeps the problems of each that is wrong.

    Methods call those of `QueryParser` by its name: a dataclass with slots is a second class, and
    `super()` would look for the first.
    """

    problems: list[Problem]

    def attempt(self, work: Callable[[], T], fallback: T) -> T:
        """Return the result of the work; if refused, keep the problems and return `fallback`.

        Past `MAX_PROBLEMS`, of all levels together, nothing more is looked at.
        """
        tally = self.literals.tally
        if tally.has(MAX_PROBLEMS, "problems"):
            return fallback
        try:
            return work()
        except LimitExceeded:
            raise  # nothing else of the request is looked at
        except Refused as refused:
            self.problems.extend(refused.problems)
            tally.note(len(refused.problems), "problems")
            return fallback

    def _filter(self, params: Params) -> Filter:
        everything: Filter = EVERYTHING
        return self.attempt(lambda: QueryParser._filter(self, params), everything)

    def _counts(self, params: Params) -> tuple[str, ...]:
        return self.attempt(lambda: counts_of(params), ())

    def _pick(
        self, head: FieldName, remainders: list[FieldPath], deep: Params, aliases: Mapping[str, str]
    ) -> AnyPick:
        star: AnyPick = Star()
        return self.attempt(lambda: QueryParser._pick(self, head, remainders, deep, aliases), star)

    def _unnamed_pick(
        self, head: FieldName, deep: Params, aliases: Mapping[str, str]
    ) -> Pick | None:
        return self.attempt(lambda: QueryParser._unnamed_pick(self, head, deep, aliases), None)

    def _deeper(self, segment: str, deep: Params, paths: list[FieldPath]) -> Query:
        # The level has its own list, so that its problems get the path of the level once, on the
        # way out, and not again at every level around it.
        level = replace(self, problems=[])
        try:
            QueryParser._deeper(level, segment, deep, paths)
        finally:
            self.problems.extend(at_level(problem, segment) for problem in level.problems)
        return Query()

    def _cursor(self, params: Params, *, is_grouped: bool) -> CursorPage | None:
        return self.attempt(lambda: QueryParser._cursor(self, params, is_grouped=is_grouped), None)

    def _window(self, params: Params) -> Window | None:
        # The numbers are tried one by one, because the parser of the window stops at the first
        # wrong one.
        count = len(self.problems)
        for name, minimum in WINDOW_MINIMUMS.items():
            self.attempt(partial(integer_of, params, name, minimum=minimum), None)
        if len(self.problems) > count:
            return None
        return self.attempt(lambda: QueryParser._window(self, params), None)

    def _search(self, params: Params) -> tuple[SearchWord, ...]:
        return self.attempt(lambda: QueryParser._search(self, params), ())

    def _highlights(self, params: Params, *, is_grouped: bool) -> bool:
        return self.attempt(
            lambda: QueryParser._highlights(self, params, is_grouped=is_grouped), False
        )

    def _aliases(self, params: Params) -> Mapping[str, str]:
        return self.attempt(lambda: QueryParser._aliases(self, params), {})

    def _aggregates(self, params: Params) -> tuple[Aggregate, ...]:
        return self.attempt(lambda: QueryParser._aggregates(self, params), ())

    def _groups(self, params: Params) -> tuple[FieldName, ...]:
        return self.attempt(lambda: QueryParser._groups(self, params), ())

    def _sort(self, params: Params, *, aggregated: bool) -> tuple[SortTerm, ...]:
        return self.attempt(lambda: QueryParser._sort(self, params, aggregated=aggregated), ())
