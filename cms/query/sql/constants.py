"""Texts that are the same in every run of a statement: one placeholder for each."""

from __future__ import annotations

from functools import lru_cache

from cms.query.language.ast import Constant
from cms.query.plan.bindings import Placeholder, unchanged


@lru_cache(maxsize=1024)
def constant_text(value: str) -> Placeholder:
    """Return one placeholder for a text, however often it is printed.

    Otherwise PostgreSQL would not see that an expression of GROUP BY is the one of SELECT.
    """
    return Placeholder(Constant(value), str, "")


@lru_cache(maxsize=1024)
def text_list(values: tuple[str, ...]) -> Placeholder:
    """Return one placeholder for a list of texts."""
    return Placeholder(Constant(values), unchanged, "")
