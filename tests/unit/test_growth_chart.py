"""The pictures of growth, and what is promised of it."""

from __future__ import annotations

from math import log10
from xml.etree import ElementTree

import pytest

from bench.growth import Growth, GrowthRow
from bench.growth_chart import PICTURES, charts
from bench.growth_operations import READS, WRITES
from bench.growth_report import growth_data, growth_table

SIZES = (10_000, 100_000, 1_000_000)
GROWTH = Growth(
    SIZES,
    tuple(
        GrowthRow(operation.name, (0.5, 0.7, 40.0), operation.reason)
        for operation in (*READS, *WRITES)
    ),
)


def test_every_operation_is_in_a_picture() -> None:
    drawn = {name for _, names in PICTURES.values() for name in names}
    assert drawn == {operation.name for operation in (*READS, *WRITES)}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_line_with_a_name_for_each_operation(name: str) -> None:
    root = ElementTree.fromstring(charts(GROWTH)[name])  # made here
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    dots = [element for element in root.iter() if element.tag.endswith("circle")]
    operations = PICTURES[name][1]
    assert set(operations) < set(texts)
    assert len(dots) == len(operations) * len(SIZES)


def test_a_line_rises_where_the_time_grows() -> None:
    root = ElementTree.fromstring(charts(GROWTH)["growth-writes"])  # made here
    first, second, third = [e for e in root.iter() if e.tag.endswith("circle")][:3]
    heights = [float(dot.attrib["cy"]) for dot in (first, second, third)]
    offsets = [float(dot.attrib["cx"]) for dot in (first, second, third)]
    assert heights[0] > heights[1] > heights[2]
    # Ten times as long is as far everywhere.
    steps = [heights[0] - heights[1], heights[1] - heights[2]]
    assert steps[0] / steps[1] == pytest.approx(log10(0.7 / 0.5) / log10(40 / 0.7), rel=0.05)
    assert offsets[1] - offsets[0] == pytest.approx(offsets[2] - offsets[1])


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
