"""What ends again and again is started after longer and longer pauses, what ran well at once."""

from __future__ import annotations

from cms.cli.auto_restart import HEALTHY_SECONDS, MAX_PAUSE_SECONDS, Backoff


def test_pauses_double_up_to_the_longest() -> None:
    pauses = Backoff(1.0)
    assert [pauses.after(0.5) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert MAX_PAUSE_SECONDS == 60


def test_pauses_begin_anew_after_a_run_that_went_well() -> None:
    pauses = Backoff(1.0)
    for _ in range(5):
        pauses.after(0.5)
    assert pauses.after(HEALTHY_SECONDS) == 1
    assert pauses.after(0.5) == 2
