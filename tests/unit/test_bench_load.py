"""What the benchmark tells of a round."""

from __future__ import annotations

import pytest

from bench.load import LoadTimes, summary
from bench.rounds import median_round


def test_one_answer_that_waits_shows_as_the_longest_of_all_rounds() -> None:
    usual = summary(LoadTimes([0.001] * 1000, 1.0))
    with_wait = summary(LoadTimes([0.001] * 999 + [1.5], 1.0))
    measured = median_round([usual, with_wait, usual])
    assert measured.p99 == pytest.approx(1)
    assert measured.longest == pytest.approx(1500)
