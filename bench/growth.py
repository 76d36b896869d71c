"""How the cost of each operation grows with the rows of its collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import psycopg

from bench.growing_data import GrownCollection, grow
from bench.growth_operations import READS, WRITES, Operation
from bench.load import Round, run
from bench.rounds import Length, Tokens, median_round
from bench.serving import RunningServer

SIZES = (10_000, 100_000, 1_000_000)
LARGE = (*SIZES, 10_000_000)
QUICK = SIZES[:2]

MAX_ROUNDS = 9
"""Some answers take many seconds in the largest collection."""

FLAT = 2.0
"""A B-tree has one level more for some hundred times the rows."""


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """One operation: the milliseconds of an answer in each size of the collection.

    `reason` says why it grows; what has none is promised to be flat.
    """

    name: str
    milliseconds: tuple[float, ...]
    reason: str | None = None

    @property
    def times(self) -> float:
        """How many times as long it takes in the largest collection as in the smallest."""
        return self.milliseconds[-1] / self.milliseconds[0]

    @property
    def kept(self) -> bool | None:
        """Whether the promise is kept; None where there is none."""
        return None if self.reason else self.times < FLAT


@dataclass(frozen=True, slots=True)
class Growth:
    """All operations, in collections of these sizes."""

    sizes: tuple[int, ...]
    rows: tuple[GrowthRow, ...]


def by_size(
    service: RunningServer, dsn: str, *, tokens: Tokens, sizes: Sequence[int], length: Length
) -> Growth:
    """Measure each operation in collections of different sizes.

    The sizes take turns, so that other load of the machine is not taken for growth; the member
    sends one request at a time. Writes come last: searches also read what waits to be put into
    their index.
    """
    collections = [grow(service, dsn, token=tokens.admin, rows=rows) for rows in sizes]
    rows = []
    for operations in (READS, WRITES):
        with psycopg.connect(dsn, autocommit=True) as connection:

            def tidy(connection: psycopg.Connection = connection) -> None:
                for collection in collections:
                    collection.remove_new_rows(connection)

            rows += _measure(operations, service, collections, tokens.member, length, tidy)
    return Growth(tuple(sizes), tuple(rows))


def _measure(
    operations: Sequence[Operation],
    service: RunningServer,
    collections: Sequence[GrownCollection],
    token: str,
    length: Length,
    tidy: Callable[[], None],
) -> list[GrowthRow]:
    """Measure operations in turns, each in all collections; `tidy` is called after each turn."""
    makers = [
        [operation.requests(service, collection, token, Random(1)) for collection in collections]
        for operation in operations
    ]
    rounds: list[list[list[Round]]] = [[[] for _ in collections] for _ in operations]
    for number in range(min(length.rounds, MAX_ROUNDS) + 1):
        for row, requests in zip(rounds, makers, strict=True):
            for measured, next_request in zip(row, requests, strict=True):
                result = run(
                    service.address, next_request, seconds=length.seconds / 2, connections=1
                )
                if number:  # the first round warms up
                    measured.append(result)
        tidy()
    return [
        GrowthRow(
            operation.name,
            tuple(median_round(measured).p50 for measured in row),
            operation.reason,
        )
        for operation, row in zip(operations, rounds, strict=True)
    ]
