"""Time is added up over blocks, and blocks inside of others count once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cms.database.allowance import Stopwatch


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moments that the clock will return, one after the other."""
    remaining: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: remaining.pop(0))
    monkeypatch.setattr("cms.database.allowance.time", clock)
    return remaining


def test_blocks_are_added_up(moments: list[float]) -> None:
    watch = Stopwatch()
    moments += [0, 1, 5, 7, 8]
    with watch.running():
        pass
    assert watch.seconds == 1
    with watch.running():
        assert watch.seconds == 3
    assert watch.seconds == 4


def test_a_block_inside_of_another_counts_once(moments: list[float]) -> None:
    watch = Stopwatch()
    moments += [0, 10]
    with watch.running(), watch.running():
        pass
    assert watch.seconds == 10


def test_a_block_that_fails_counts_as_well(moments: list[float]) -> None:
    watch = Stopwatch()
    moments += [0, 2]
    with pytest.raises(KeyError), watch.running():
        raise KeyError
    assert watch.seconds == 2
