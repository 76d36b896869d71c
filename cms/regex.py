"""Regular expressions of people, matched in time linear in the text whatever the pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

MAX_PATTERN_LENGTH = 1_000
# Bytes of a compiled pattern: a short one with nested counts, as in (a{99}){99}, may take far more.
_MAX_MEMORY = 1 << 20


@lru_cache(maxsize=256)
def compile_regex(text: str) -> Any:
    """Return a pattern with `search`, in the syntax of RE2; raises ValueError for an invalid one.

    `$` matches only at the very end of the text. Slashes around a pattern do not count.
    """
    if len(text) > MAX_PATTERN_LENGTH:
        raise ValueError(f"a pattern has at most {MAX_PATTERN_LENGTH} characters")
    pattern = text[1:-1] if len(text) > 1 and text[0] == text[-1] == "/" else text
    options = re2.Options()
    options.log_errors = False  # the library would write to standard error
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"it is not a pattern that RE2 knows: {_message(error)}") from None


def _message(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
