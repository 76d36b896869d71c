"""How much one request may ask for; past a limit the answer is 400 INVALID_QUERY."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cms.errors import Refused, invalid_query

# Above what any sensible client sends, and low enough that parsing, planning and PostgreSQL's own
# planner take bounded time. All levels of a request share the counted ones (`Tally`).
MAX_QUERY_PARAMETERS = 5_000
MAX_BRACKETS = 60
MAX_FILTER_DEPTH = 50
MAX_PATH_STEPS = 110
MAX_DEEP_GROUPS = 500
MAX_FILTER_NODES = 500
# A step of a path into JSON costs hardly more than one of a relation, and a path that is shown
# reads the document once more.
MAX_JSON_STEPS = 20
MAX_JSON_PATHS = 100
MAX_LIST_OPERANDS = 10_000
# To compile one may take 20 ms.
MAX_PATTERNS = 50
MAX_SORT_TERMS = 100
# PostgreSQL's own limit of columns in a table; no list of names in a query is longer.
MAX_FIELDS = 1_600
MAX_FIELDS_IN_ALL = 10_000
# Of all paths in `fields`: each step may open a level of its own.
MAX_STEPS_IN_ALL = 20_000
MAX_ALIASES = 100
MAX_AGGREGATES = 100
MAX_GROUPS = 100
MAX_SEARCH_LENGTH = 1_000
# Each is looked for in every field, and folded while the statement is planned.
MAX_SEARCH_WORDS = 20
# PostgreSQL takes limits and offsets as bigint, whose end is twice as far.
MAX_OFFSET = 2**62


class LimitExceeded(Refused):
    """A request asks for more than it may; nothing else of it is looked at."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts what one request has asked for so far, at all its levels together."""

    _counted: Counter[str] = field(default_factory=Counter)

    def has(self, count: int, what: str) -> bool:
        """Tell whether so much of something has been counted."""
        return self._counted[what] >= count

    def add(self, count: int, what: str, *, maximum: int, parameter: str) -> None:
        """Count more of something; raises `LimitExceeded` INVALID_QUERY past `maximum`."""
        self.note(count, what)
        if self._counted[what] > maximum:
            raise too_many(what, maximum=maximum, parameter=parameter)

    def note(self, count: int, what: str) -> None:
        """Count more of something that has no maximum."""
        self._counted[what] += count


def refuse_long_path(path: str, parameter: str) -> None:
    """Refuse a dotted path with too many steps, before it is taken apart."""
    if path.count(".") >= MAX_PATH_STEPS:
        reason = f"{parameter} holds a path of more than {MAX_PATH_STEPS} steps"
        raise LimitExceeded(invalid_query(reason, parameter=parameter).problems)


def too_many(what: str, *, maximum: int, parameter: str) -> LimitExceeded:
    """Return the refusal of a request that asks for more of something than it may."""
    reason = f"{parameter} asks for more than {maximum} {what}"
    refused = invalid_query(reason, parameter=parameter)
    return LimitExceeded(refused.problems)
