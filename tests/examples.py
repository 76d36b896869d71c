"""How many examples properties are tried on: all under the profile `full`, else a quarter."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK = "quick"
FULL = "full"
FULL_EXAMPLES = 100
QUICK_EXAMPLES = 25


def register_profiles() -> None:
    """Make the profiles known; `--hypothesis-profile full` chooses the other one."""
    for name, max_examples in ((FULL, FULL_EXAMPLES), (QUICK, QUICK_EXAMPLES)):
        settings.register_profile(
            name,
            max_examples=max_examples,
            # How long an example takes says what else the machine does, and fails at random.
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(QUICK)


def example_count(full_count: int) -> int:
    """Return the share of a number of examples that the profile in use asks for, at least one."""
    profile = settings.default
    assert profile is not None
    return max(1, full_count * profile.max_examples // FULL_EXAMPLES)
