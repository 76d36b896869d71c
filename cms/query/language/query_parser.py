"""The parser of one level of a query and, by `deep` and paths, of all levels below it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cms.errors import Problem, Refused, invalid_query
from cms.query.language import limits
from cms.query.language.aggregates import AGGREGATES
from cms.query.language.ast import (
    EVERYTHING,
    Aggregate,
    AnyPick,
    CursorPage,
    DeepQuery,
    Filter,
    Pick,
    Query,
    SearchWord,
    SortTerm,
    Star,
    Window,
)
from cms.query.language.filters import parse_filter
from cms.query.language.literals import Literals
from cms.query.language.paging import (
    PageSizes,
    parse_cursor,
    parse_window,
    refuse_token,
    without_cursor,
)
from cms.query.language.parameters import (
    Params,
    aggregate_of,
    counts_of,
    flag_of,
    group_of,
    names_of,
    refuse_follow,
    term_of,
)
from cms.schema.names import NAME, FieldName, FieldPath, parse_name

LEVEL_PARAMETERS = (
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
"""The parameters that each level of a query may have."""
DEEP_PARAMETERS = tuple(f"_{name}" for name in LEVEL_PARAMETERS)


Aliases = Mapping[str, str]
"""Fields by the names that a request gives them."""


@dataclass(frozen=True, slots=True)
class QueryParser:
    """Parses one level with the sizes of `page`, and levels below with those of `nested_page`."""

    literals: Literals
    page: PageSizes
    nested_page: PageSizes
    takes_cursor: bool
    """Whether pages of this level may have a cursor."""

    def query(self, params: Params, paths: list[FieldPath], deep: Params) -> Query:
        """Parse one level; `deep` holds the parameters of the levels below it."""
        # Literals get their slots in the order of these calls: it must be the same for every
        # request.
        aggregates = self._aggregates(params)
        groups = self._groups(params)
        aliases = self._aliases(params)
        picks = self._picks(paths, deep, aliases)
        unnamed = self._unnamed_picks(paths, deep, aliases)
        is_grouped = bool(aggregates or groups)
        checked_only = list(map(_count_only, unnamed.values()))
        if is_grouped:
            # Aggregated rows show no fields, yet the names of fields must exist.
            checked_only += [pick for pick in picks if isinstance(pick, Pick)]
        cursor = self._cursor(params, is_grouped=is_grouped)
        return Query(
            picks=() if is_grouped else picks,
            deep=tuple(_deep_queries(unnamed)),
            checked_only=tuple(checked_only),
            filter=self._filter(params),
            # One row of aggregates has no order, whatever `sort` says.
            sort=() if aggregates and not groups else self._sort(params, aggregated=is_grouped),
            window=self._window(without_cursor(params)),
            search=self._search(params),
            aggregates=aggregates,
            groups=groups,
            counts=self._counts(params),
            cursor=cursor,
            highlights=self._highlights(params, is_grouped=is_grouped),
        )

    def _filter(self, params: Params) -> Filter:
        value = params.get("filter")
        if value is None:
            return EVERYTHING
        return parse_filter(value, self.literals)

    def _counts(self, params: Params) -> tuple[str, ...]:
        return counts_of(params)

    def _picks(self, paths: list[FieldPath], deep: Params, aliases: Aliases) -> tuple[AnyPick, ...]:
        # Paths that begin with one field become one pick: `author.name,author.email` opens the
        # author once, with two fields.
        remainders_by_head: dict[FieldName, list[FieldPath]] = {}
        for head, *rest in paths:
            remainders_by_head.setdefault(head, []).append(tuple(rest))
        picks: list[AnyPick] = []
        for head, remainders in remainders_by_head.items():
            picks.append(self._pick(head, remainders, deep, aliases))
        return tuple(picks)

    def _unnamed_picks(
        self, paths: list[FieldPath], deep: Params, aliases: Aliases
    ) -> dict[FieldName, Pick]:
        """Return picks of names that are in `deep` or `alias`, but not in `fields`."""
        # `fields=item:headings.title` has the head `item:headings`, and `deep` may call the same
        # field `item`: both forms count as named.
        named = set()
        for path in paths:
            named.add(path[0].written)
            named.add(path[0].field)
        picks = {}
        for text in (*deep, *aliases):
            if text in named:
                continue
            head = FieldName.parse(text)
            pick = self._unnamed_pick(head, deep, aliases)
            # None is one that was refused, where problems are collected.
            if pick is not None:
                picks[head] = pick
        return picks

    def _unnamed_pick(self, head: FieldName, deep: Params, aliases: Aliases) -> Pick | None:
        return self._field_pick(head, [], deep, aliases)

    def _pick(
        self, head: FieldName, remainders: list[FieldPath], deep: Params, aliases: Aliases
    ) -> AnyPick:
        """Parse the field at the head of paths; `remainders` is what follows it in each of them."""
        if head.field == "*":
            return Star(self._nested(head, remainders, deep))
        return self._field_pick(head, remainders, deep, aliases)

    def _field_pick(
        self, head: FieldName, remainders: list[FieldPath], deep: Params, aliases: Aliases
    ) -> Pick:
        # The target stands behind the alias: `section:headings` where `section` is `item`.
        refuse_follow(head.field, "deep")
        name = parse_name(aliases.get(head.field, head.field))
        if head.target:
            name = FieldName.parse(f"{name.written}:{head.target}", name.function)
        key = head.field if head.field in aliases else name.key
        if not key:
            raise invalid_query("fields holds an empty name", parameter="fields")
        return Pick(key, name, self._nested(head, remainders, deep))

    def _nested(self, head: FieldName, remainders: list[FieldPath], deep: Params) -> Query | None:
        """Parse the query of the items that a field leads to; None if no parameter is about it."""
        nested_paths = list(filter(None, remainders))
        # `deep` may name the field alone or with its target: `item`, `item:headings`.
        deep_key = head.written if deep.get(head.written) is not None else head.field
        if deep.get(deep_key) is None and not nested_paths:
            return None
        return self._deeper(deep_key, deep, nested_paths)

    def _deeper(self, segment: str, deep: Params, paths: list[FieldPath]) -> Query:
        if deep.get(segment) is not None:
            self._tally(1, "groups of deep", limits.MAX_DEEP_GROUPS, "deep")
            if segment == "*":
                raise invalid_query('deep takes names of fields, and no "*"', parameter="deep[*]")
        # `deep[author]=` is an empty group.
        params = deep.get(segment) or {}
        if not isinstance(params, Mapping):
            raise invalid_query(
                f'deep[{segment}] must be a group of parameters such as "_limit"', parameter="deep"
            )
        try:
            return self._nested_query(params, paths)
        except Refused as refused:
            kind = limits.LimitExceeded if isinstance(refused, limits.LimitExceeded) else Refused
            raise kind(at_level(problem, segment) for problem in refused.problems) from None

    def _nested_query(self, deep: Params, paths: list[FieldPath]) -> Query:
        """Parse the level below; keys with an underscore are its parameters, others its fields."""
        params: dict[str, object] = {}
        deeper: dict[str, object] = {}
        for key, value in deep.items():
            if not key.startswith("_"):
                deeper[key] = value
            elif key in DEEP_PARAMETERS:
                params[key[1:]] = value
            else:
                takes = ", ".join(DEEP_PARAMETERS)
                reason = f'deep does not take "{key}"; it takes {takes} and names of fields'
                raise invalid_query(reason, parameter=f"deep[{key}]")
        # From here down every level is nested; `nested_page` stays the same.
        level = replace(self, page=self.nested_page, takes_cursor=False)
        return level.query(params, paths, deeper)

    def _window(self, params: Params) -> Window | None:
        return parse_window(params, self.page, self.literals)

    def _cursor(self, params: Params, *, is_grouped: bool) -> CursorPage | None:
        if not self.takes_cursor:
            refuse_token(params)
            return None
        return parse_cursor(params, self.page, self.literals, is_grouped=is_grouped)

    def _search(self, params: Params) -> tuple[SearchWord, ...]:
        text = params.get("search")
        if text is None or text == "":
            return ()
        if not isinstance(text, str | int) or len(str(text)) > limits.MAX_SEARCH_LENGTH:
            raise invalid_query(
                f"search is a text of at most {limits.MAX_SEARCH_LENGTH} characters",
                parameter="search",
            )
        # A word of digits comes as a number in the body of a SEARCH.
        words = search_words(str(text))
        self._tally(len(words), "words of searches", limits.MAX_SEARCH_WORDS, "search")
        return tuple(
            SearchWord(self.literals.slot(word), is_short=len(word) < SHORTEST_INDEXED)
            for word in words
        )

    def _highlights(self, params: Params, *, is_grouped: bool) -> bool:
        highlights = flag_of(params, "highlight")
        if highlights and is_grouped:
            raise invalid_query("highlight is for items, not for groups", parameter="highlight")
        return highlights

    def _aliases(self, params: Params) -> Aliases:
        aliases: dict[str, str] = {}
        for alias, field in group_of(params, "alias").items():
            if not isinstance(field, str) or not NAME.fullmatch(alias):
                raise invalid_query(
                    f"alias[{alias}] must be a plain name that stands for a field",
                    parameter="alias",
                )
            refuse_follow(field, "alias")
            # The guard looks up later what the alias stands for.
            aliases[alias] = field
        self._tally(len(aliases), "aliases", limits.MAX_ALIASES, "alias")
        return aliases

    def _aggregates(self, params: Params) -> tuple[Aggregate, ...]:
        aggregates: list[Aggregate] = []
        for function, fields in group_of(params, "aggregate").items():
            if function not in AGGREGATES:
                reason = f'There is no aggregate "{function}"; there are {", ".join(AGGREGATES)}'
                raise invalid_query(reason, parameter="aggregate")
            names = names_of({"aggregate": fields}, "aggregate") or ["*"]
            self._tally(len(names), "aggregates", limits.MAX_AGGREGATES, "aggregate")
            for name in names:
                aggregates.append(aggregate_of(function, name))
        return tuple(dict.fromkeys(aggregates))

    def _groups(self, params: Params) -> tuple[FieldName, ...]:
        # `groupBy` and `group` are one parameter under two names; sent together they add up.
        names = dict.fromkeys([*names_of(params, "groupBy"), *names_of(params, "group")])
        self._tally(len(names), "fields to group by", limits.MAX_GROUPS, "groupBy")
        return tuple(map(parse_name, names))

    def _sort(self, params: Params, *, aggregated: bool) -> tuple[SortTerm, ...]:
        names = names_of(params, "sort")
        self._tally(len(names), "terms of a sort", limits.MAX_SORT_TERMS, "sort")
        return tuple(term_of(name, aggregated=aggregated) for name in names)

    def _tally(self, count: int, what: str, maximum: int, parameter: str) -> None:
        """Count the parts of one request, of all its levels together."""
        self.literals.tally.add(count, what, maximum=maximum, parameter=parameter)


def _deep_queries(picks: Mapping[FieldName, Pick]) -> Iterator[DeepQuery]:
    for head, pick in picks.items():
        if pick.nested:
            yield DeepQuery(head.field, head.target, pick.nested)


def _count_only(pick: Pick) -> Pick:
    """Ask for no item of a list that is not shown: the caller need not see its keys."""
    if pick.nested is None:
        return pick
    counted = (*pick.nested.aggregates, Aggregate("count", None))
    return replace(pick, nested=replace(pick.nested, aggregates=counted))


def at_level(problem: Problem, segment: str) -> Problem:
    """Return a problem that says at which level of `deep` its parameter is wrong."""
    extensions = dict(problem.extensions)
    for key in ("parameter", "path"):
        if key in extensions:
            extensions[key] = _level_path(str(extensions[key]), segment)
    return replace(problem, extensions=extensions)


def _level_path(path: str, segment: str) -> str:
    head, bracket, rest = path.partition("[")
    # Paths of `fields` begin at the top and name their level themselves.
    if head == "fields":
        return path
    if head == "deep":
        return f"deep[{segment}]{bracket}{rest}"
    # `filter[price]` at the level `author` becomes `deep[author][_filter][price]`.
    return f"deep[{segment}][_{head}]{bracket}{rest}"


# Words of a search


_WORD = re.compile(r'"([^"]*)"|(\S+)')

SHORTEST_INDEXED = 3
"""Characters from which on an index helps to find a word: it is one of groups of three."""


def search_words(text: str) -> list[str]:
    """Return the words and phrases of a search, each once.

    Words are parted by white space. A phrase begins with a quote at the start of a word, and ends
    with the next one; any other quote is a character like others.
    """
    words = []
    for match in _WORD.finditer(text):
        phrase, word = match.groups()
        if word or phrase.strip():
            words.append(word or phrase)
    return list(dict.fromkeys(words))
