"""Caches drop what was used longest ago, and stay within their bounds whoever uses them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from cms.store.snapshot import Bounded


def missed() -> str:
    pytest.fail("it is not there any more")


def holds(cache: Bounded[int, str], key: int) -> bool:
    """Tell whether an entry is there, which counts as a use of it."""
    return cache.get(key, lambda: "made") != "made"


def test_what_is_used_stays_whatever_comes() -> None:
    cache: Bounded[int, str] = Bounded(100)
    cache.get(-1, lambda: "used")
    for number in range(10_000):
        cache.get(number, lambda: "passing")
        assert cache.get(-1, missed) == "used"
    assert 90 <= len(cache) <= 100


def test_what_was_used_longest_ago_goes_first() -> None:
    cache: Bounded[int, str] = Bounded(4)
    for number in range(4):
        cache.get(number, lambda: "a")
    for number in (2, 0, 3):
        cache.get(number, missed)
    cache.get(4, lambda: "a")
    cache.get(5, lambda: "a")
    assert [holds(cache, number) for number in (5, 4, 3, 0)] == [True] * 4
    assert not holds(cache, 1)


def test_what_is_heavy_pushes_out_what_was_used_longest_ago() -> None:
    cache: Bounded[int, str] = Bounded(10, room=100, weigh=len)
    for number in range(5):
        cache.get(number, lambda: "x" * 20)
    cache.get(0, missed)
    cache.get(5, lambda: "x" * 70)
    assert len(cache) == 2
    assert holds(cache, 0)


def test_nothing_that_is_kept_is_made_again() -> None:
    """Also nothing, which is as good a value as any."""
    cache: Bounded[int, None] = Bounded(10)
    assert cache.get(1, lambda: None) is None
    assert cache.get(1, missed) is None  # type: ignore[arg-type]


def test_many_threads_leave_it_within_its_bounds() -> None:
    cache: Bounded[int, str] = Bounded(50, room=1_000, weigh=len)

    def use(seed: int) -> None:
        random = Random(seed)
        for _ in range(5_000):
            key = random.randrange(200)
            size = key % 40
            assert len(cache.get(key, lambda: "x" * size)) == size  # noqa: B023
            assert len(cache) <= 50

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    kept = [entry.value for entry in cache._entries.values()]
    assert sum(map(len, kept)) == cache._weight <= 1_000
