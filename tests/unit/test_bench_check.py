"""The ratios of a run beside those that were recorded: `make bench-check`."""

from __future__ import annotations

from collections.abc import Iterator

from bench.ratio_check import REPETITIONS, ComparedRatio, compare_ratios, lines, recorded_ratios

RECORDED = {"one item": 0.8, "create one": 1.0}


class Measurements:
    """Ratios that are measured one after the other, and how many were."""

    def __init__(self, *ratios: float) -> None:
        self._ratios: Iterator[float] = iter(ratios)
        self.names: list[str] = []

    def __call__(self, name: str) -> float:
        self.names.append(name)
        return next(self._ratios)


def test_ratios_are_read_by_the_names_of_their_cases() -> None:
    results = {"cases": [{"name": "one item", "ratio": 0.8, "target": 0.7}], "load": 1.5}
    assert recorded_ratios(results) == {"one item": 0.8}


def test_a_ratio_is_kept_from_85_hundredths_of_the_recorded_one_on() -> None:
    assert ComparedRatio("one item", 0.8, 0.68).is_kept
    assert not ComparedRatio("one item", 0.8, 0.679).is_kept


def test_a_case_that_keeps_its_ratio_is_measured_once() -> None:
    measure = Measurements(0.8, 0.9)
    compared = compare_ratios(RECORDED, ["one item", "create one"], measure)
    assert measure.names == ["one item", "create one"]
    assert [one.measured for one in compared] == [0.8, 0.9]


def test_a_case_that_falls_short_is_measured_again_before_it_fails() -> None:
    measure = Measurements(0.5, 0.7)
    (compared,) = compare_ratios(RECORDED, ["one item"], measure)
    assert measure.names == ["one item", "one item"]
    assert compared.is_kept
    assert compared.measured == 0.7


def test_a_case_that_falls_short_each_time_has_failed_with_its_best_ratio() -> None:
    measure = Measurements(0.5, 0.6, 0.4)
    (compared,) = compare_ratios(RECORDED, ["one item"], measure)
    assert len(measure.names) == 1 + REPETITIONS
    assert not compared.is_kept
    assert compared.measured == 0.6


def test_a_case_that_was_never_recorded_is_left_out() -> None:
    assert compare_ratios(RECORDED, ["new"], Measurements()) == []


def test_the_last_line_names_what_has_failed() -> None:
    compared = [ComparedRatio("one item", 0.8, 0.8), ComparedRatio("create one", 1.0, 0.5)]
    assert lines(compared) == [
        "one item: 0.80, recorded 0.80: 1.00 of it",
        "create one: 0.50, recorded 1.00: 0.50 of it, which is below 0.85",
        "Slower than recorded: create one.",
    ]
    assert lines(compared[:1]) == ["one item: 0.80, recorded 0.80: 1.00 of it"]
