"""What is promised of growth with the rows."""

from __future__ import annotations

from bench.growth import Growth, GrowthRow
from bench.growth_operations import READS, WRITES
from bench.report import growth_data, growth_table

SIZES = (10_000, 100_000, 1_000_000)
GROWTH = Growth(
    SIZES,
    tuple(
        GrowthRow(operation.name, (0.5, 0.7, 40.0), operation.reason)
        for operation in (*READS, *WRITES)
    ),
)


def test_what_takes_less_than_twice_as_long_is_flat() -> None:
    assert GrowthRow("one item", (1.0, 5.0, 1.9)).kept
    assert GrowthRow("one item", (1.0, 1.0, 2.0)).kept is False


def test_nothing_is_promised_of_what_has_a_reason_to_grow() -> None:
    row = GrowthRow("group and count", (1.0, 10.0), "every row is counted")
    assert row.kept is None
    assert "every row is counted" in growth_table(Growth((1, 2), (row,)))


def test_the_data_hold_sizes_and_times_of_each_operation() -> None:
    data = growth_data(GROWTH)
    assert data["sizes"] == SIZES
    assert data["operations"][0]["milliseconds"] == (0.5, 0.7, 40.0)
    assert data["operations"][0]["times"] == 80.0
