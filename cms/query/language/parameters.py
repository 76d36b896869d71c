"""Single parameters of a query: lists of names, groups, whole numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cms.errors import invalid_query
from cms.query.language import limits
from cms.query.language.aggregates import AGGREGATES
from cms.query.language.ast import Aggregate, SortTerm
from cms.query.language.filters import decode_json
from cms.query.language.query_strings import as_list
from cms.schema.names import FOLLOW, FieldName, FieldPath, parse_path, parse_value_path

FILTER_COUNT = "filter_count"
COUNTS = ("total_count", FILTER_COUNT)
"""The counts that `meta` may have: of all rows that the caller sees, and of those of the filter."""
NEXT_CURSOR = "next_cursor"
"""The member of `meta` with the cursor of the next page."""
COUNT_ESTIMATE = "filter_count_estimate"
"""The member of `meta` for a number that takes no counting; `*` does not ask for it."""
RANKED = "ranked"
"""The member of `meta` of a page by relevance, where more rows are found than are ranked."""
META = (*COUNTS, COUNT_ESTIMATE, NEXT_CURSOR)

# At most 18 digits: they fit PostgreSQL's bigint, and int() has no long text to read.
_INTEGER = re.compile(r"-?[0-9]{1,18}")

EVERY_FIELD = (FieldName("*"),)

Params = Mapping[str, object]


def field_paths(params: Params) -> list[FieldPath]:
    """Return the paths of `fields`, all fields without any; repeated paths count once."""
    names = names_of(params, "fields")
    steps = 0
    for name in names:
        limits.refuse_long_path(name, "fields")
        steps += name.count(".") + 1
    if steps > limits.MAX_STEPS_IN_ALL:
        raise limits.too_many("steps", maximum=limits.MAX_STEPS_IN_ALL, parameter="fields")
    paths = list(map(parse_path, names)) or [EVERY_FIELD]
    # A dict keeps the order of its keys, and a set does not: keys of the answer come in the order
    # of the request.
    return list(dict.fromkeys(paths))


def names_of(params: Params, parameter: str) -> list[str]:
    """Return names given as a comma list, repeated, by `[]`, or as a JSON array."""
    value = as_list(params.get(parameter))
    # `fields=` counts as no `fields`.
    if value is None or value == "":
        return []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise invalid_query(f"{parameter} is a list of names", parameter=parameter)
    names: list[str] = []
    for text in texts:
        if len(names) + text.count(",") >= limits.MAX_FIELDS:
            raise limits.too_many("names", maximum=limits.MAX_FIELDS, parameter=parameter)
        names += _split(text, parameter)
    return names


def _split(item: str, parameter: str) -> list[str]:
    names = [name.strip() for name in item.split(",")]
    if not all(names):
        raise invalid_query(f"{parameter} holds an empty name", parameter=parameter)
    for name in names:
        refuse_follow(name, parameter)
    return names


def refuse_follow(name: str, parameter: str) -> None:
    """Raise `Refused` INVALID_QUERY for a name that only filters take."""
    if FOLLOW in name:
        raise invalid_query(f"{FOLLOW}…) is for filters alone", parameter=parameter)


def group_of(params: Params, parameter: str) -> Params:
    """Return a parameter that holds names and values, by brackets or as JSON; empty if not sent."""
    group = decode_json(params.get(parameter), parameter)
    if group is None:
        return {}
    if not isinstance(group, Mapping):
        raise invalid_query(f"{parameter} is a group of names and values", parameter=parameter)
    return group


def term_of(text: str, *, aggregated: bool) -> SortTerm:
    """Return a term of `sort`; where rows are `aggregated` it may be an aggregate, `sum.price`."""
    limits.refuse_long_path(text, "sort")
    descending = text.startswith("-")
    name = text.removeprefix("-")
    # `-sum.price` sorts by the aggregate, `-price` and `-author.name` by fields. `sum` alone is an
    # aggregate of the rows themselves.
    function, _, field = name.partition(".")
    if aggregated and function in AGGREGATES:
        return SortTerm((), descending, aggregate_of(function, field or "*"))
    return SortTerm(parse_value_path(name), descending)


def aggregate_of(function: str, field: str) -> Aggregate:
    """Return an aggregate of a field; `*` stands for the rows themselves."""
    return Aggregate(function, None if field == "*" else FieldName(field))


def integer_of(params: Params, parameter: str, *, minimum: int) -> int | None:
    """Return a whole number, None if it is not sent."""
    value = params.get(parameter)
    if value is None or value == "":
        return None
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if (
        isinstance(value, bool)  # which is an int to Python
        or not isinstance(value, int)
        or not minimum <= value <= limits.MAX_OFFSET
    ):
        raise invalid_query(
            f"{parameter} is a whole number, {minimum} or more", parameter=parameter
        )
    return value


def flag_of(params: Params, parameter: str) -> bool:
    """Return a parameter that is true or false, false if it is not sent."""
    match params.get(parameter):
        case None | "" | "false" | False:
            return False
        case "true" | True:
            return True
        case _:
            raise invalid_query(f"{parameter} is true or false", parameter=parameter)


def counts_of(params: Params) -> tuple[str, ...]:
    """Return the counts that `meta` asks for, in a fixed order."""
    names = meta_names(params)
    if "*" in names:
        names = [*names, *COUNTS]
    elif any(name not in META for name in names):
        raise invalid_query(f"meta takes {', '.join(META)} or *", parameter="meta")
    # One order, whatever that of the request is: both orders share one statement.
    return tuple(name for name in (*COUNTS, COUNT_ESTIMATE) if name in names)


def meta_names(params: Params) -> list[str]:
    """Return what `meta` asks for, each name once."""
    return list(dict.fromkeys(names_of(params, "meta")))
