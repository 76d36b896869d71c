"""How many examples properties are tried on: all under the profile `full`, else a quarter."""

from __future__ import annotations

from hypothesis import settings

QUICK = "quick"
FULL = "full"
FULL_EXAMPLES = 100
QUICK_EXAMPLES = 25


def register_profiles() -> None:
    """Make the profiles known; `--hypothesis-profile full` chooses the other one."""
    settings.register_profile(FULL, max_examples=FULL_EXAMPLES)
    settings.register_profile(QUICK, max_examples=QUICK_EXAMPLES)
    settings.load_profile(QUICK)


def example_count(full_count: int) -> int:
    """Return the share of a number of examples that the profile in use asks for, at least one."""
    profile = settings.default
    assert profile is not None
    return max(1, full_count * profile.max_examples // FULL_EXAMPLES)
