"""Variables of features that are not built yet: setting one is refused, not ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

# Refused instead of ignored: whoever sets them would believe that they work.
UNBUILT: Mapping[str, str] = {
    "REDIS": "rate limits shared by several machines",
    "RATE_LIMITER_ENABLED": "rate limits",
    "RATE_LIMITER_PER_SECOND": "rate limits",
    "RATE_LIMITER_PER_MINUTE": "rate limits",
    "METRICS_TOKEN": "metrics",
}
"""Each variable and its purpose; a line is removed when the setting is built."""


def unbuilt(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that is set and not built yet."""
    for name, value in variables.items():
        purpose = _purpose_of(name)
        if value and purpose:
            yield f"{name} is not built yet ({purpose}): remove it."


def _purpose_of(name: str) -> str | None:
    """Return the purpose of a variable that is not built yet; None for any other."""
    for pattern, purpose in UNBUILT.items():
        if _matches_pattern(name, pattern):
            return purpose
    return None


def _matches_pattern(name: str, pattern: str) -> bool:
    # Any setting may be in a file, which `<NAME>_FILE` names.
    return bool(re.fullmatch(pattern.replace("<NAME>", "[A-Z][A-Z0-9_]*") + "(_FILE)?", name))
