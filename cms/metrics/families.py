"""The families of metrics that processes count (docs/monitoring.md)."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

OTHER_METHOD = "other"
"""The label of all methods that do not exist."""


class Family(NamedTuple):
    """A family of metrics: a counter, or a histogram where it has `bounds`.

    `bounds` are the upper bounds of its buckets in seconds, without the last one, which is
    infinite.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers a series has: its value, or each bucket and the sum."""
        return len(self.bounds) + 2 if self.bounds else 1


# From half a millisecond, which a short read takes, to what makes a client give up.
_REQUEST_BOUNDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
# A free connection is there at once; after five seconds a request is answered 503.
_WAIT_BOUNDS = (0.0001, 0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0)

REQUESTS = Family("cms_requests", "Requests answered.", ("method", "route", "status"))
STATEMENTS = Family("cms_statements", "Statements sent to PostgreSQL.")
PLAN_CACHE_HITS = Family("cms_plan_cache_hits", "Requests whose statement was in the cache.")
PLAN_CACHE_MISSES = Family("cms_plan_cache_misses", "Statements that had to be planned.")
TRANSFORMS = Family("cms_transforms", "Images transformed.")
FLOW_RUNS = Family("cms_flow_runs", "Runs of flows, each attempt counted.")
REQUEST_DURATION = Family(
    "cms_request_duration_seconds",
    "Time from the head of a request to the head of its answer.",
    ("method", "route"),
    _REQUEST_BOUNDS,
)
POOL_WAIT = Family(
    "cms_pool_wait_seconds", "Time that work waited for a connection.", bounds=_WAIT_BOUNDS
)

FAMILIES = (
    REQUESTS,
    STATEMENTS,
    PLAN_CACHE_HITS,
    PLAN_CACHE_MISSES,
    TRANSFORMS,
    FLOW_RUNS,
    REQUEST_DURATION,
    POOL_WAIT,
)

LAYOUT = sha256(repr([(family.name, family.width) for family in FAMILIES]).encode()).hexdigest()
"""Tells apart files of versions whose series have other widths."""
