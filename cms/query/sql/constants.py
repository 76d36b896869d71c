"""Texts that are the same in every run of a statement: one placeholder for each."""

from __future__ import annotations

from functools import lru_cache

from cms.bounded_cache import bounded_cache
from cms.query.language.ast import Constant
from cms.query.plan.bindings import Placeholder, unchanged

_MAX_LIST_BYTES = 2**23
# As large as the lists of many requests: a list may stand in one statement more than once.
_lists = bounded_cache(_MAX_LIST_BYTES)


@lru_cache(maxsize=1024)  # texts come from the structure alone
def constant_text(value: str) -> Placeholder:
    """Return one placeholder for a text, however often it is printed.

    Otherwise PostgreSQL would not see that an expression of GROUP BY is the one of SELECT.
    """
    return Placeholder(Constant(value), str, "")


def text_list(values: tuple[str, ...]) -> Placeholder:
    """Return one placeholder for a list of texts."""
    placeholder: Placeholder = _lists.setdefault_with(
        values, lambda: Placeholder(Constant(values), unchanged, "")
    )
    return placeholder
