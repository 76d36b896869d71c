"""What ends again and again is started after longer and longer pauses, what ran well at once."""

from __future__ import annotations

from cms.cli.pauses import LONGEST_PAUSE_SECONDS, WELL_SECONDS, Pauses


def test_pauses_double_up_to_the_longest() -> None:
    pauses = Pauses(1.0)
    assert [pauses.after(0.5) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert LONGEST_PAUSE_SECONDS == 60


def test_pauses_begin_anew_after_a_run_that_went_well() -> None:
    pauses = Pauses(1.0)
    for _ in range(5):
        pauses.after(0.5)
    assert pauses.after(WELL_SECONDS) == 1
    assert pauses.after(0.5) == 2
