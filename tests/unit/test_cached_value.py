"""Cached values: computed once for all, again after their time, never waited for long."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cms.caches import CachedValue


def test_parallel_callers_share_one_search_and_later_ones_its_value() -> None:
    calls = []
    all_have_asked = threading.Event()

    def find() -> int:
        calls.append(threading.get_ident())
        all_have_asked.wait(60)
        return len(calls)

    cached = CachedValue(find, seconds=60)
    with ThreadPoolExecutor(20) as pool:
        futures = list(pool.map(lambda _: cached.begin(), range(40)))
    all_have_asked.set()
    values = [future.result(60) for future in futures]
    assert (set(values), len(calls)) == ({1}, 1)
    assert cached.get(max_seconds=0) == 1


def test_a_value_is_computed_again_after_its_time() -> None:
    numbers = iter(range(10))
    now = 100.0
    cached = CachedValue(lambda: next(numbers), seconds=5, clock=lambda: now)
    assert cached.get(max_seconds=60) == 0
    now = 105.0
    assert cached.get(max_seconds=60) == 0
    now = 105.1
    assert cached.get(max_seconds=60) == 1


def test_a_failure_is_kept_as_well() -> None:
    calls = []

    def find() -> None:
        calls.append(1)
        raise LookupError

    cached = CachedValue(find, seconds=60)
    for _ in range(3):
        with pytest.raises(LookupError):
            cached.get(max_seconds=60)
    assert len(calls) == 1


def test_nobody_waits_longer_than_asked_and_nothing_is_begun_twice() -> None:
    calls = []
    release = threading.Event()

    def find() -> int:
        calls.append(1)
        release.wait(60)
        return 7

    cached = CachedValue(find, seconds=60)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            cached.get(max_seconds=0.05)
    release.set()
    assert cached.get(max_seconds=60) == 7
    assert len(calls) == 1
