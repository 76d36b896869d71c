"""What comes next is made in advance, and its errors are raised in its turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cms.items.transfer.imports import Prefetch


def numbers(produced: list[int], *, count: int) -> Iterator[int]:
    for number in range(count):
        produced.append(number)
        yield number
    raise ValueError("the file ends in the middle")


def test_one_element_is_made_ahead_however_often_it_is_asked_for() -> None:
    produced: list[int] = []
    prefetch = Prefetch(numbers(produced, count=3))
    assert next(prefetch) == 0
    for _ in range(3):
        prefetch.advance()
    assert produced == [0, 1]
    assert (next(prefetch), next(prefetch)) == (1, 2)


def test_a_fault_is_raised_when_its_turn_comes_and_ends_the_iterator() -> None:
    prefetch = Prefetch(numbers([], count=1))
    assert next(prefetch) == 0
    prefetch.advance()
    with pytest.raises(ValueError, match="in the middle"):
        next(prefetch)
    assert list(prefetch) == []


def test_it_ends_where_the_iterator_ends() -> None:
    prefetch = Prefetch(iter("ab"))
    for _ in prefetch:
        prefetch.advance()
    assert list(prefetch) == []
