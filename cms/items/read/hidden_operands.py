"""Estimates of a caller from whom rules hide rows: they do not depend on what the caller sends.

PostgreSQL's statistics also cover hidden rows. Estimated with its operands, a filter that finds
nothing would still tell which values are frequent in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cms.access.policy import Policy
from cms.query.language.ast import EVERYTHING, Slot
from cms.query.plan.bindings import Placeholder

_PARAMETER = re.compile(
    r"""
    "(?:[^"]|"")*" | '(?:[^']|'')*'  # names and texts, in which nothing is a parameter
    | (?<!LIMIT[ ])(?<!OFFSET[ ])
    \$(?P<number>[0-9]+)::(?P<type>(?:[a-z]+(?:[ ][a-z]+)*|"[^"]+"(?:\."[^"]+")?)(?:\[\])*)
    """,
    re.VERBOSE,
)


def sees_every_row(policy: Policy, collections: Iterable[str]) -> bool:
    """Tell whether no rule hides from a caller any row of these collections."""
    if policy.is_admin:
        return True
    if policy.shared:
        return False
    for collection in collections:
        for grant in policy.granted(collection, "read"):
            if grant.rule != EVERYTHING:
                return False
    return True


def with_hidden_operands(text: str, values: Sequence[object]) -> str:
    """Return a statement whose literals PostgreSQL knows only when it runs, not when it plans."""

    def hidden(match: re.Match[str]) -> str:
        number = match["number"]
        if number is None or not _is_literal(values[int(number) - 1]):
            return match[0]
        # PostgreSQL runs a sub-select without a table once, and plans for any result of it.
        return f"(SELECT {match[0]})::{match['type']}"

    return _PARAMETER.sub(hidden, text)


def _is_literal(value: object) -> bool:
    """Tell whether a parameter comes from the request, and not from a rule or its caller."""
    return isinstance(value.operand if isinstance(value, Placeholder) else value, Slot)
