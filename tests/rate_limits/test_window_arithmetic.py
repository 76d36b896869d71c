"""Windows count exactly, compared with a plain model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.rate_limits.windows import NEVER, Limit, Usage, Window, acquire, tighter

LIMITS = (Limit(3, 1), Limit(5, 60))


class Client:
    """The windows of one client."""

    def __init__(self, *limits: Limit) -> None:
        self.limits = limits
        self.windows: list[Window] = [NEVER] * len(limits)

    def send(self, now: float) -> Usage:
        windows, usage = acquire(self.windows, self.limits, now)
        self.windows = list(windows)
        return usage


class PlainModel:
    """The same by lists of times."""

    def __init__(self, *limits: Limit) -> None:
        self.limits = limits
        self.passed: list[list[float]] = [[] for _ in limits]

    def send(self, now: float) -> bool:
        for limit, times in zip(self.limits, self.passed, strict=True):
            if times and now - times[0] >= limit.seconds:
                times.clear()
        if any(
            len(times) >= limit.amount
            for limit, times in zip(self.limits, self.passed, strict=True)
        ):
            return False
        for times in self.passed:
            times.append(now)
        return True


# In quarters of a second, which are exact as floats.
steps = st.lists(st.integers(0, 300).map(lambda quarters: quarters / 4), max_size=200)
some_limits = st.lists(
    st.builds(Limit, st.integers(1, 8), st.integers(1, 60)), min_size=1, max_size=2
)


@given(limits=some_limits, pauses=steps, start=st.integers(1, 10**9))
def test_requests_pass_as_in_a_plain_model(
    limits: list[Limit], pauses: list[float], start: int
) -> None:
    client = Client(*limits)
    model = PlainModel(*limits)
    now = float(start)
    for pause in pauses:
        now += pause
        usage = client.send(now)
        assert usage.passed == model.send(now), pause
        left = [
            limit.amount - len(times) for limit, times in zip(limits, model.passed, strict=True)
        ]
        # A window that is over counts as empty until a request passes.
        if usage.passed:
            assert usage.remaining == min(left), pause
        else:
            assert usage.remaining == 0, pause
        assert 0 < usage.seconds_left <= max(limit.seconds for limit in limits), pause


@given(pauses=steps)
def test_after_the_seconds_of_retry_after_a_request_passes(pauses: list[float]) -> None:
    client = Client(*LIMITS)
    now = 1.0
    for pause in pauses:
        now += pause
        usage = client.send(now)
        if not usage.passed:
            now += usage.retry_after
            assert client.send(now).passed, pause


def test_a_window_is_not_refilled() -> None:
    client = Client(Limit(2, 10))
    outcomes = [client.send(now).passed for now in (0.5, 9.0, 10.0, 10.4, 10.5, 10.6, 10.7)]
    assert outcomes == [True, True, False, False, True, True, False]


def test_a_refused_request_takes_no_room_from_the_other_window() -> None:
    client = Client(Limit(2, 1), Limit(4, 60))
    assert [client.send(1.0).passed for _ in range(10)] == [True, True] + [False] * 8
    assert [client.send(2.0).passed for _ in range(10)] == [True, True] + [False] * 8
    assert not client.send(3.0).passed
    # Nor does it begin one: both windows begin with the next request that passes.
    assert client.send(61.0) == Usage(True, 2, 1, 1.0)


def test_the_window_with_the_fewest_requests_left_is_reported() -> None:
    client = Client(Limit(3, 1), Limit(5, 60))
    assert client.send(1.0) == Usage(True, 3, 2, 1.0)
    client.send(1.0)
    assert client.send(1.5) == Usage(True, 3, 0, 0.5)
    assert client.send(2.0) == Usage(True, 5, 1, 59.0)


def test_of_windows_with_as_few_left_the_one_that_ends_later_is_reported() -> None:
    client = Client(Limit(2, 1), Limit(2, 60))
    client.send(1.0)
    assert client.send(1.0) == Usage(True, 2, 0, 60.0)
    assert client.send(1.0).retry_after == 60


def test_only_the_first_refusal_of_a_window_is_marked() -> None:
    client = Client(Limit(1, 1))
    refusals = [client.send(now).is_first_refusal for now in (1.0, 1.1, 1.2, 1.3, 2.0, 2.1, 2.2)]
    assert refusals == [False, True, False, False, False, True, False]


def test_an_end_of_another_clock_does_not_count() -> None:
    client = Client(Limit(1, 1))
    client.windows = [(1, 1_000_000.0)]
    assert client.send(5.0) == Usage(True, 1, 0, 1.0)


def test_a_lower_limit_than_was_counted_refuses() -> None:
    assert not acquire([(10, 1.5)], [Limit(4, 1)], 1.0)[1].passed


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Usage(False, 10, 0, 1.0), Usage(True, 10, 0, 50.0)),
        (Usage(True, 10, 3, 1.0), Usage(True, 90, 4, 50.0)),
        (Usage(True, 10, 3, 2.0), Usage(True, 90, 3, 1.0)),
    ],
)
def test_the_tighter_of_two_usages(first: Usage, second: Usage) -> None:
    assert tighter(first, second) == first
    assert tighter(second, first) == first
