"""Query parameters to the tree of what was said (specification, section 4.2; decisions, section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cms.errors import Problem, Refused, invalid_query
from cms.query import limits
from cms.query.ast import EVERYTHING, KEY, STAR, Aggregate, Name, Pick, Query, Said, Slot, Term, Window
from cms.query.brackets import listed, nested
from cms.query.filters import decoded, parse_filter, parse_name
from cms.query.literals import Literals

AGGREGATES = (
    "count",
    "countDistinct",
    "countAll",
    "sum",
    "sumDistinct",
    "avg",
    "avgDistinct",
    "min",
    "max",
)
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
    for name in ("filter", "sort", "limit", "offset", "page", "search", "aggregate", "groupBy", "group", "alias")
)
COUNTS = ("total_count", "filter_count")

_ROUND = (1, 2, 5, *(digits * 10**zeros for zeros in range(9) for digits in (10, 20, 25, 50)))

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")

Params = Mapping[str, object]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """How many rows come when nobody says, and how many at most; None is all of them."""

    default: int | None = 100
    most: int | None = None

    @property
    def usual(self) -> Window | None:
        """The window when nobody says: its number is a setting and no client's, so it may stand in the text."""
        sizes = [size for size in (self.default, self.most) if size is not None]
        return Window(min(sizes)) if sizes else None


def parse_query_string(query_string: str, page: Page) -> Said:
    """Parse the query string of a GET."""
    return parse(nested(query_string), page)


def parse(params: Params, page: Page, *, below: Page | None = None) -> Said:
    """Parse parameters: strings and nested dicts of a query string, or the `query` of a SEARCH body.

    `below` is the page of the levels below, when it is another. Unknown parameters are ignored; a wrong value of a
    known one raises `Refused` INVALID_QUERY.
    """
    literals = Literals()
    query = _Parser(literals, page, below or page).query(params, _paths(params), _group(params, "deep"))
    return Said(query, tuple(literals.values))


@dataclass(frozen=True, slots=True)
class _Parser:
    literals: Literals
    page: Page
    below: Page

    def query(self, params: Params, paths: list[Path], deep: Params) -> Query:
        """Parse one level; `deep` holds the parameters of the levels below it."""
        aggregates, groups, aliases = self._aggregates(params), self._groups(params), self._aliases(params)
        said, heads = params.get("filter"), {head for path in paths for head in (path[0], path[0].partition(":")[0])}
        picks = self._picks(paths, deep, aliases)
        unnamed = {name: self._pick(name, [], deep, aliases) for name in (*deep, *aliases) if name not in heads}
        shapes = not aggregates and not groups
        return Query(
            picks=picks if shapes else (),
            deep=tuple((name, pick.nested) for name, pick in unnamed.items() if pick.nested),
            unshown=(
                *map(_unlisted, unnamed.values()),
                *(() if shapes else (pick for pick in picks if pick.key != STAR.key)),
            ),
            filter=EVERYTHING if said is None else parse_filter(said, self.literals),
            sort=self._sort(params, aggregated=not shapes),
            window=self._window(params),
            search=self._search(params),
            aggregates=aggregates,
            groups=groups,
            counts=_counts(params),
        )

    def _picks(self, paths: list[Path], deep: Params, aliases: Mapping[str, str]) -> tuple[Pick, ...]:
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
        if key == KEY:
            raise invalid_query("fields holds an empty name", parameter="fields")
        opened = [rest for rest in rests if rest]
        place = head if deep.get(head) is not None else segment
        if deep.get(place) is None and not opened:
            return Pick(key, name)
        return Pick(key, name, self._deeper(place, deep, opened))

    def _deeper(self, segment: str, deep: Params, paths: list[Path]) -> Query:
        below = deep.get(segment) or {}
        if not isinstance(below, Mapping):
            raise invalid_query(f'deep[{segment}] must be a group of parameters such as "_limit"', parameter="deep")
        try:
            return self._below(below, paths)
        except Refused as refused:
            raise Refused(_placed(problem, segment) for problem in refused.problems) from None

    def _below(self, deep: Params, paths: list[Path]) -> Query:
        for key in deep:
            if key.startswith("_") and key not in DEEP_PARAMETERS:
                fault = f'deep does not take "{key}"; it takes {", ".join(DEEP_PARAMETERS)} and names of fields'
                raise invalid_query(fault, parameter=f"deep[{key}]")
        params = {key[1:]: value for key, value in deep.items() if key.startswith("_")}
        deeper = {key: value for key, value in deep.items() if not key.startswith("_")}
        return replace(self, page=self.below).query(params, paths, deeper)

    def _window(self, params: Params) -> Window | None:
        limit = _integer(params, "limit", least=-1)
        offset = _integer(params, "offset", least=0)
        number = _integer(params, "page", least=1)
        size = self._size(limit)
        if offset is None:
            offset = _start(number or 1, size)
        if offset > limits.MAX_OFFSET:
            raise invalid_query("The page is out of range", parameter="page")
        start = self.literals.slot(offset) if offset else None
        reach = size if not offset and self.page.usual == Window(size) else _reach(size, offset)
        if reach == size and start is None:
            return Window(reach) if reach else None
        return Window(reach, self.literals.slot(size), start)

    def _size(self, limit: int | None) -> int | None:
        """Return the page's size; None is all rows."""
        asked = self.page.default if limit is None else None if limit == -1 else limit
        most = self.page.most
        return asked if most is None else most if asked is None else min(asked, most)

    def _search(self, params: Params) -> Slot | None:
        said = params.get("search")
        if said is None or said == "":
            return None
        if not isinstance(said, str | int) or len(str(said)) > limits.MAX_SEARCH_LENGTH:
            raise invalid_query(
                f"search is a text of at most {limits.MAX_SEARCH_LENGTH} characters", parameter="search"
            )
        return self.literals.slot(str(said))

    def _aliases(self, params: Params) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for alias, field in _group(params, "alias").items():
            if not isinstance(field, str) or not _ALIAS.fullmatch(alias):
                raise invalid_query(f"alias[{alias}] must be a plain name that stands for a field", parameter="alias")
            found[alias] = field
        self.literals.tally.add(len(found), "aliases", most=limits.MAX_ALIASES, parameter="alias")
        return found

    def _aggregates(self, params: Params) -> tuple[Aggregate, ...]:
        found: list[Aggregate] = []
        for function, fields in _group(params, "aggregate").items():
            if function not in AGGREGATES:
                fault = f'There is no aggregate "{function}"; there are {", ".join(AGGREGATES)}'
                raise invalid_query(fault, parameter="aggregate")
            found += [Aggregate(function, Name(name)) for name in _names({"aggregate": fields}, "aggregate") or ["*"]]
        self.literals.tally.add(len(found), "aggregates", most=limits.MAX_AGGREGATES, parameter="aggregate")
        return tuple(dict.fromkeys(found))

    def _groups(self, params: Params) -> tuple[Name, ...]:
        names = dict.fromkeys([*_names(params, "groupBy"), *_names(params, "group")])
        self.literals.tally.add(len(names), "fields to group by", most=limits.MAX_GROUPS, parameter="groupBy")
        return tuple(parse_name(name) for name in names)

    def _sort(self, params: Params, *, aggregated: bool) -> tuple[Term, ...]:
        names = _names(params, "sort")
        self.literals.tally.add(len(names), "terms of a sort", most=limits.MAX_SORT_TERMS, parameter="sort")
        return tuple(_term(name, aggregated=aggregated) for name in names)


def _unlisted(pick: Pick) -> Pick:
    """Ask for no item of a list that is not shown: its keys need not be there for the caller."""
    if pick.nested is None:
        return pick
    counted = (*pick.nested.aggregates, Aggregate("count", Name("*")))
    return replace(pick, nested=replace(pick.nested, aggregates=counted))


def _placed(problem: Problem, segment: str) -> Problem:
    """Tell at which level of `deep` a parameter is wrong."""
    places = {key: _place(said, segment) for key, said in problem.extensions.items() if key in ("parameter", "path")}
    return replace(problem, extensions={**problem.extensions, **places})


def _place(said: object, segment: str) -> str:
    head, bracket, rest = str(said).partition("[")
    if head == "fields":
        return str(said)
    return f"deep[{segment}]" + ("" if head == "deep" else f"[_{head}]") + bracket + rest


def _reach(size: int | None, offset: int) -> int | None:
    """Return the first round number that is not below the end of the page; None for all rows."""
    if size is None:
        return None
    return next((number for number in _ROUND if number >= size + offset), None)


def _start(page: int, size: int | None) -> int:
    """Where a page starts; all rows are one page, and there is nothing on the next."""
    if size is None:
        return 0 if page == 1 else limits.MAX_OFFSET
    return (page - 1) * size


def _paths(params: Params) -> list[Path]:
    paths = [tuple(name.split(".")) for name in _names(params, "fields")] or [("*",)]
    if len(paths) > limits.MAX_FIELDS:
        raise invalid_query(f"It asks for more than {limits.MAX_FIELDS} fields", parameter="fields")
    if max(map(len, paths)) > limits.MAX_PATH_STEPS:
        raise invalid_query(f"fields holds a path of more than {limits.MAX_PATH_STEPS} steps", parameter="fields")
    return list(dict.fromkeys(paths))


def _names(params: Params, parameter: str) -> list[str]:
    """Return names given as a comma list, repeated, by `[]`, or as a JSON array."""
    said = listed(params.get(parameter))
    if said is None or said == "":
        return []
    found = [said] if isinstance(said, str) else said
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise invalid_query(f"{parameter} is a list of names", parameter=parameter)
    return [name for item in found for name in _split(item, parameter)]


def _split(item: str, parameter: str) -> list[str]:
    names = [name.strip() for name in item.split(",")]
    if not all(names):
        raise invalid_query(f"{parameter} holds an empty name", parameter=parameter)
    return names


def _group(params: Params, parameter: str) -> Params:
    said = decoded(params.get(parameter), parameter)
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise invalid_query(f"{parameter} is a group of names and values", parameter=parameter)
    return said


def _term(text: str, *, aggregated: bool) -> Term:
    descending, name = text.startswith("-"), text.removeprefix("-")
    function, _, field = name.partition(".")
    if aggregated and function in AGGREGATES:
        return Term((), descending, Aggregate(function, Name(field or "*")))
    return Term(tuple(parse_name(step) for step in name.split(".")), descending)


def _integer(params: Params, parameter: str, *, least: int) -> int | None:
    said = params.get(parameter)
    if said is None or said == "":
        return None
    if isinstance(said, str) and _INTEGER.fullmatch(said):
        said = int(said)
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= limits.MAX_OFFSET:
        raise invalid_query(f"{parameter} is a whole number, {least} or more", parameter=parameter)
    return said


def _counts(params: Params) -> tuple[str, ...]:
    said = dict.fromkeys(_names(params, "meta"))
    if "*" in said:
        return COUNTS
    _refuse_unknown(said)
    return tuple(name for name in COUNTS if name in said)


def _refuse_unknown(said: Iterable[str]) -> None:
    unknown = [name for name in said if name not in COUNTS]
    if unknown:
        raise invalid_query(f"meta takes {', '.join(COUNTS)} or *", parameter="meta")
