"""Query parameters to the tree of what was said (specification, section 4.2; decisions, section 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from cms.errors import Problem, Refused, combined, invalid_query
from cms.query.language import limits
from cms.query.language.ast import (
    EVERYTHING,
    INTERNAL_KEY,
    STAR,
    Aggregate,
    FieldName,
    Filter,
    ParsedQuery,
    Pick,
    Query,
    Slot,
    SortTerm,
    Window,
)
from cms.query.language.brackets import nested_params
from cms.query.language.filters import parse_filter, parse_name
from cms.query.language.limits import LimitExceeded
from cms.query.language.literals import Literals
from cms.query.language.parameters import (
    AGGREGATES,
    Params,
    Path,
    counts_of,
    field_paths,
    group_of,
    integer_of,
    names_of,
    term_of,
)

__all__ = [
    "AGGREGATES",
    "DEEP_PARAMETERS",
    "PARAMETERS",
    "PageSizes",
    "UnreadableParameters",
    "parse",
    "parse_query_string",
]

PARAMETERS = frozenset(
    {
        "fields",
        "filter",
        "sort",
        "limit",
        "offset",
        "page",
        "search",
        "meta",
        "aggregate",
        "groupBy",
        "group",
        "alias",
        "deep",
    }
)
DEEP_PARAMETERS = tuple(
    f"_{name}"
    for name in (
        "filter",
        "sort",
        "limit",
        "offset",
        "page",
        "search",
        "aggregate",
        "groupBy",
        "group",
        "alias",
    )
)
_ROUND_NUMBERS = (
    1,
    2,
    5,
    *(digits * 10**zeros for zeros in range(9) for digits in (10, 20, 25, 50)),
)

_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")

_NAMING = ("alias", "deep", "aggregate", "group")
"""Parameters that say what the names in others mean."""

_WINDOW_MINIMUMS = {"limit": -1, "offset": 0, "page": 1}
"""The parameters of a page, each with the least that it takes."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageSizes:
    """How many rows come when nobody says, and how many at most; None is all of them."""

    default: int | None = 100
    maximum: int | None = None

    @property
    def default_window(self) -> Window | None:
        """The window when nobody says: its number is a setting and no client's, so it may stand in
        the text.
        """
        sizes = [size for size in (self.default, self.maximum) if size is not None]
        return Window(min(sizes)) if sizes else None


def parse_query_string(query_string: str, page: PageSizes) -> ParsedQuery:
    """Parse the query string of a GET."""
    return parse(nested_params(query_string), page)


def parse(params: Params, page: PageSizes, *, nested_page: PageSizes | None = None) -> ParsedQuery:
    """Parse parameters: strings and nested dicts of a query string, or the `query` of a SEARCH
    body.

    `nested_page` is the page of the levels below, when it is another. Unknown parameters are
    ignored; a wrong value of a known one raises `Refused` INVALID_QUERY.
    """
    try:
        return _parse(params, page, nested_page or page)
    except RecursionError:
        raise invalid_query("It is nested too deeply", parameter="deep") from None


def _parse(params: Params, page: PageSizes, below: PageSizes) -> ParsedQuery:
    literals = Literals()
    try:
        query = _Parser(literals, page, below).query(
            params, field_paths(params), group_of(params, "deep")
        )
    except LimitExceeded:
        raise
    except Refused as refused:
        raise _every_refusal(params, page, first=refused) from None
    return ParsedQuery(query, tuple(literals.values))


class UnreadableParameters(Refused):
    """Parameters that cannot be read; `rest` is what the others say, where that means something
    without them.
    """

    def __init__(self, problems: Sequence[Problem], rest: ParsedQuery | None) -> None:
        super().__init__(problems)
        self.rest = rest


def _every_refusal(params: Params, page: PageSizes, *, first: Refused) -> UnreadableParameters:
    """Return everything that is wrong with parameters: they are read again, each by itself."""
    problems: list[Problem] = []
    collector = _Collector(Literals(), page, page, problems)
    whole: list[Path] = [("*",)]
    paths = collector.attempt(lambda: field_paths(params), whole)
    query = collector.query(params, paths, collector.attempt(lambda: group_of(params, "deep"), {}))
    different = combined(problems or first.problems).problems
    naming = any(
        str(problem.extensions.get("parameter")).startswith(_NAMING) for problem in different
    )
    return UnreadableParameters(
        different, None if naming else ParsedQuery(query, tuple(collector.literals.values))
    )


@dataclass(frozen=True, slots=True)
class _Parser:
    literals: Literals
    page: PageSizes
    below: PageSizes

    def query(self, params: Params, paths: list[Path], deep: Params) -> Query:
        """Parse one level; `deep` holds the parameters of the levels below it."""
        aggregates, groups, aliases = (
            self._aggregates(params),
            self._groups(params),
            self._aliases(params),
        )
        heads = {head for path in paths for head in (path[0], path[0].partition(":")[0])}
        picks = self._picks(paths, deep, aliases)
        unnamed = {
            name: self._pick(name, [], deep, aliases)
            for name in (*deep, *aliases)
            if name not in heads
        }
        shapes = not aggregates and not groups
        return Query(
            picks=picks if shapes else (),
            deep=tuple((name, pick.nested) for name, pick in unnamed.items() if pick.nested),
            checked_only=(
                *map(_count_only, unnamed.values()),
                *(() if shapes else (pick for pick in picks if pick.key != STAR.key)),
            ),
            filter=self._filter(params),
            sort=self._sort(params, aggregated=not shapes),
            window=self._window(params),
            search=self._search(params),
            aggregates=aggregates,
            groups=groups,
            counts=self._counts(params),
        )

    def _filter(self, params: Params) -> Filter:
        value = params.get("filter")
        return EVERYTHING if value is None else parse_filter(value, self.literals)

    def _counts(self, params: Params) -> tuple[str, ...]:
        return counts_of(params)

    def _picks(
        self, paths: list[Path], deep: Params, aliases: Mapping[str, str]
    ) -> tuple[Pick, ...]:
        heads: dict[str, list[Path]] = {}
        for path in paths:
            heads.setdefault(path[0], []).append(path[1:])
        return tuple(self._pick(head, rests, deep, aliases) for head, rests in heads.items())

    def _pick(self, head: str, rests: list[Path], deep: Params, aliases: Mapping[str, str]) -> Pick:
        segment, _, scope = head.partition(":")
        name = parse_name(aliases.get(segment, segment))
        if scope:
            name = replace(name, field=f"{name.field}:{scope}")
        key = segment if segment in aliases else name.key
        if key == INTERNAL_KEY:
            raise invalid_query("fields holds an empty name", parameter="fields")
        opened = [rest for rest in rests if rest]
        place = head if deep.get(head) is not None else segment
        if deep.get(place) is None and not opened:
            return Pick(key, name)
        return Pick(key, name, self._deeper(place, deep, opened))

    def _deeper(self, segment: str, deep: Params, paths: list[Path]) -> Query:
        below = deep.get(segment) or {}
        if not isinstance(below, Mapping):
            raise invalid_query(
                f'deep[{segment}] must be a group of parameters such as "_limit"', parameter="deep"
            )
        try:
            return self._below(below, paths)
        except Refused as refused:
            raise Refused(_at_level(problem, segment) for problem in refused.problems) from None

    def _below(self, deep: Params, paths: list[Path]) -> Query:
        for key in deep:
            if key.startswith("_") and key not in DEEP_PARAMETERS:
                fault = f'deep does not take "{key}"; it takes {", ".join(DEEP_PARAMETERS)} and names of fields'
                raise invalid_query(fault, parameter=f"deep[{key}]")
        params = {key[1:]: value for key, value in deep.items() if key.startswith("_")}
        deeper = {key: value for key, value in deep.items() if not key.startswith("_")}
        return replace(self, page=self.below).query(params, paths, deeper)

    def _window(self, params: Params) -> Window | None:
        limit = integer_of(params, "limit", minimum=-1)
        offset = integer_of(params, "offset", minimum=0)
        number = integer_of(params, "page", minimum=1)
        size = self._size(limit)
        if offset is None:
            offset = _page_offset(number or 1, size)
        if offset > limits.MAX_OFFSET:
            raise invalid_query("The page is out of range", parameter="page")
        start = self.literals.slot(offset) if offset else None
        reach = (
            size
            if not offset and self.page.default_window == Window(size)
            else _row_limit(size, offset)
        )
        if reach == size and start is None:
            return Window(reach) if reach else None
        return Window(reach, self.literals.slot(size), start)

    def _size(self, limit: int | None) -> int | None:
        """Return the page's size; None is all rows."""
        asked = self.page.default if limit is None else None if limit == -1 else limit
        maximum = self.page.maximum
        return asked if maximum is None else maximum if asked is None else min(asked, maximum)

    def _search(self, params: Params) -> Slot | None:
        said = params.get("search")
        if said is None or said == "":
            return None
        if not isinstance(said, str | int) or len(str(said)) > limits.MAX_SEARCH_LENGTH:
            raise invalid_query(
                f"search is a text of at most {limits.MAX_SEARCH_LENGTH} characters",
                parameter="search",
            )
        return self.literals.slot(str(said))

    def _aliases(self, params: Params) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for alias, field in group_of(params, "alias").items():
            if not isinstance(field, str) or not _ALIAS.fullmatch(alias):
                raise invalid_query(
                    f"alias[{alias}] must be a plain name that stands for a field",
                    parameter="alias",
                )
            found[alias] = field
        self.literals.tally.add(
            len(found), "aliases", maximum=limits.MAX_ALIASES, parameter="alias"
        )
        return found

    def _aggregates(self, params: Params) -> tuple[Aggregate, ...]:
        found: list[Aggregate] = []
        for function, fields in group_of(params, "aggregate").items():
            if function not in AGGREGATES:
                fault = f'There is no aggregate "{function}"; there are {", ".join(AGGREGATES)}'
                raise invalid_query(fault, parameter="aggregate")
            found += [
                Aggregate(function, FieldName(name))
                for name in names_of({"aggregate": fields}, "aggregate") or ["*"]
            ]
        self.literals.tally.add(
            len(found), "aggregates", maximum=limits.MAX_AGGREGATES, parameter="aggregate"
        )
        return tuple(dict.fromkeys(found))

    def _groups(self, params: Params) -> tuple[FieldName, ...]:
        names = dict.fromkeys([*names_of(params, "groupBy"), *names_of(params, "group")])
        self.literals.tally.add(
            len(names), "fields to group by", maximum=limits.MAX_GROUPS, parameter="groupBy"
        )
        return tuple(parse_name(name) for name in names)

    def _sort(self, params: Params, *, aggregated: bool) -> tuple[SortTerm, ...]:
        names = names_of(params, "sort")
        self.literals.tally.add(
            len(names), "terms of a sort", maximum=limits.MAX_SORT_TERMS, parameter="sort"
        )
        return tuple(term_of(name, aggregated=aggregated) for name in names)


@dataclass(frozen=True, slots=True)
class _Collector(_Parser):
    """Reads every parameter, whatever is wrong with the others, and keeps the problems of all."""

    problems: list[Problem]

    def attempt(self, work: Callable[[], T], instead: T) -> T:
        """Return what the work does; where it is refused keep the problems, and return something
        harmless.
        """
        try:
            return work()
        except Refused as refused:
            self.problems.extend(refused.problems)
            return instead

    def _filter(self, params: Params) -> Filter:
        everything: Filter = EVERYTHING
        return self.attempt(lambda: _Parser._filter(self, params), everything)

    def _counts(self, params: Params) -> tuple[str, ...]:
        return self.attempt(lambda: counts_of(params), ())

    def _pick(self, head: str, rests: list[Path], deep: Params, aliases: Mapping[str, str]) -> Pick:
        return self.attempt(lambda: _Parser._pick(self, head, rests, deep, aliases), STAR)

    def _deeper(self, segment: str, deep: Params, paths: list[Path]) -> Query:
        inner = replace(self, problems=[])
        try:
            _Parser._deeper(inner, segment, deep, paths)
        finally:
            self.problems.extend(_at_level(problem, segment) for problem in inner.problems)
        return Query()

    def _window(self, params: Params) -> Window | None:
        before = len(self.problems)
        for name, minimum in _WINDOW_MINIMUMS.items():
            self.attempt(partial(integer_of, params, name, minimum=minimum), None)
        return (
            None
            if len(self.problems) > before
            else self.attempt(lambda: _Parser._window(self, params), None)
        )

    def _search(self, params: Params) -> Slot | None:
        return self.attempt(lambda: _Parser._search(self, params), None)

    def _aliases(self, params: Params) -> Mapping[str, str]:
        return self.attempt(lambda: _Parser._aliases(self, params), {})

    def _aggregates(self, params: Params) -> tuple[Aggregate, ...]:
        return self.attempt(lambda: _Parser._aggregates(self, params), ())

    def _groups(self, params: Params) -> tuple[FieldName, ...]:
        return self.attempt(lambda: _Parser._groups(self, params), ())

    def _sort(self, params: Params, *, aggregated: bool) -> tuple[SortTerm, ...]:
        return self.attempt(lambda: _Parser._sort(self, params, aggregated=aggregated), ())


def _count_only(pick: Pick) -> Pick:
    """Ask for no item of a list that is not shown: its keys need not be there for the caller."""
    if pick.nested is None:
        return pick
    counted = (*pick.nested.aggregates, Aggregate("count", FieldName("*")))
    return replace(pick, nested=replace(pick.nested, aggregates=counted))


def _at_level(problem: Problem, segment: str) -> Problem:
    """Tell at which level of `deep` a parameter is wrong."""
    places = {
        key: _level_path(said, segment)
        for key, said in problem.extensions.items()
        if key in ("parameter", "path")
    }
    return replace(problem, extensions={**problem.extensions, **places})


def _level_path(said: object, segment: str) -> str:
    head, bracket, rest = str(said).partition("[")
    if head == "fields":
        return str(said)
    return f"deep[{segment}]" + ("" if head == "deep" else f"[_{head}]") + bracket + rest


def _row_limit(size: int | None, offset: int) -> int | None:
    """Return the first round number that is not below the end of the page; None for all rows."""
    if size is None:
        return None
    return next((number for number in _ROUND_NUMBERS if number >= size + offset), None)


def _page_offset(page: int, size: int | None) -> int:
    """Where a page starts; all rows are one page, and there is nothing on the next."""
    if size is None:
        return 0 if page == 1 else limits.MAX_OFFSET
    return (page - 1) * size
