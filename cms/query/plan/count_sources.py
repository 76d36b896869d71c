"""What an estimated number of rows comes from."""

from __future__ import annotations

from enum import Enum


class CountEstimate(Enum):
    """The source of an estimate of the rows that fulfil the filter.

    Statistics of columns cover all rows. So they are used only for a caller from whom no rule hides
    any row; for others the filter is tried on a sample of the rows that they see.
    """

    STATISTICS = "statistics"
    SAMPLE = "sample"
