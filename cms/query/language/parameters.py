"""Single parameters of a query: lists of names, groups, whole numbers (decisions, section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cms.errors import invalid_query
from cms.query.language import limits
from cms.query.language.ast import Aggregate, FieldName, SortTerm
from cms.query.language.brackets import as_list
from cms.query.language.filters import decode_json, parse_name

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
COUNTS = ("total_count", "filter_count")

_INTEGER = re.compile(r"-?[0-9]{1,18}")

Params = Mapping[str, object]
Path = tuple[str, ...]


def field_paths(params: Params) -> list[Path]:
    paths = [tuple(name.split(".")) for name in names_of(params, "fields")] or [("*",)]
    if len(paths) > limits.MAX_FIELDS:
        raise invalid_query(f"It asks for more than {limits.MAX_FIELDS} fields", parameter="fields")
    if max(map(len, paths)) > limits.MAX_PATH_STEPS:
        raise invalid_query(
            f"fields holds a path of more than {limits.MAX_PATH_STEPS} steps", parameter="fields"
        )
    return list(dict.fromkeys(paths))


def names_of(params: Params, parameter: str) -> list[str]:
    """Return names given as a comma list, repeated, by `[]`, or as a JSON array."""
    said = as_list(params.get(parameter))
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


def group_of(params: Params, parameter: str) -> Params:
    said = decode_json(params.get(parameter), parameter)
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise invalid_query(f"{parameter} is a group of names and values", parameter=parameter)
    return said


def term_of(text: str, *, aggregated: bool) -> SortTerm:
    descending, name = text.startswith("-"), text.removeprefix("-")
    function, _, field = name.partition(".")
    if aggregated and function in AGGREGATES:
        return SortTerm((), descending, Aggregate(function, FieldName(field or "*")))
    return SortTerm(tuple(parse_name(step) for step in name.split(".")), descending)


def integer_of(params: Params, parameter: str, *, minimum: int) -> int | None:
    said = params.get(parameter)
    if said is None or said == "":
        return None
    if isinstance(said, str) and _INTEGER.fullmatch(said):
        said = int(said)
    if (
        isinstance(said, bool)
        or not isinstance(said, int)
        or not minimum <= said <= limits.MAX_OFFSET
    ):
        raise invalid_query(
            f"{parameter} is a whole number, {minimum} or more", parameter=parameter
        )
    return said


def counts_of(params: Params) -> tuple[str, ...]:
    said = dict.fromkeys(names_of(params, "meta"))
    if "*" in said:
        return COUNTS
    _refuse_unknown(said)
    return tuple(name for name in COUNTS if name in said)


def _refuse_unknown(said: Iterable[str]) -> None:
    unknown = [name for name in said if name not in COUNTS]
    if unknown:
        raise invalid_query(f"meta takes {', '.join(COUNTS)} or *", parameter="meta")
