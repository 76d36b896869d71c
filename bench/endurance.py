"""The memory of one worker over 100,000 mixed requests: it grows until its caches are full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random

from bench.bulk import memory
from bench.cases import CREATE_100, READS, RULED_READS, WRITES
from bench.load import run
from bench.rounds import Tokens
from bench.serving import RunningServer, serving
from bench.stage import BenchEnvironment
from bench.tables import MAX_WORKER, Promise
from bench.wire import request

REQUESTS = 100_000
QUICK_REQUESTS = 10_000
STEPS = 10
"""How often the memory is looked at."""

MAX_GROWN = 5.0
"""MiB that a worker may gain in the second half."""

_SECONDS = 1.0
_FIELDS = ("id", "title", "body", "status", "views", "rating", "published", "author.name")
_SORTS = ("id", "-id", "title", "-views", "published", "-rating")
_SHORT = [case for case in (*READS, *RULED_READS, *WRITES) if case.rows == 1]
_LONG = ("1,000 rows", "group and count")


@dataclass(frozen=True, slots=True)
class Endurance:
    """The MiB of a worker after each tenth of so many requests."""

    requests: int
    memory: list[float]

    @property
    def grown(self) -> float:
        """What it has gained in the second half."""
        return self.memory[-1] - self.memory[len(self.memory) // 2 - 1]


def measure(stage: BenchEnvironment, *, tokens: Tokens, quick: bool) -> Endurance:
    """Send all kinds of requests to one worker, with shapes that soon fill its caches."""
    requests = QUICK_REQUESTS if quick else REQUESTS
    environ = {**stage.environ, "WEB_CONCURRENCY": "1"}
    # A folder of its own: the log of the other servers is in that of the stage.
    folder = stage.folder / "endurance"
    folder.mkdir()
    with serving("service", folder, environ) as service:
        return Endurance(requests, list(_memory_of(service, Mix(tokens), requests)))


class Mix:
    """Requests of all kinds, and how many there were."""

    def __init__(self, tokens: Tokens) -> None:
        self.count = 0
        self._random = Random(1)
        self._tokens = tokens
        self._short = [self._requests(case.name) for case in _SHORT if not _is_long(case.name)]
        self._long = [self._requests(case.name) for case in _SHORT if _is_long(case.name)]
        self._long.append(CREATE_100.requests("service", tokens.admin, seed=1))
        self._fields = [
            ",".join(some) for size in (2, 3, 4) for some in combinations(_FIELDS, size)
        ]

    def next_request(self) -> bytes:
        self.count += 1
        # One in a hundred takes as long as many others together.
        if self.count % 100 == 0:
            return self._random.choice(self._long)()
        if self.count % 4 == 0:
            return self._other_shape()
        return self._random.choice(self._short)()

    def _other_shape(self) -> bytes:
        """Return a list of another shape, of which there are more than a worker remembers."""
        choose = self._random.choice
        operator = choose(("_eq", "_gte", "_lt", "_neq"))
        target = (
            f"/items/articles?limit={choose((5, 10, 25))}&fields={choose(self._fields)}"
            f"&sort={choose(_SORTS)}&filter[views][{operator}]={self._random.randrange(1000)}"
        )
        return request("GET", target, token=choose((self._tokens.admin, self._tokens.member)))

    def _requests(self, name: str) -> Callable[[], bytes]:
        (case,) = (case for case in _SHORT if case.name == name)
        token = self._tokens.member if case.member else self._tokens.admin
        return case.requests("service", token, seed=1)


def _is_long(name: str) -> bool:
    return name.startswith(_LONG)


def _memory_of(service: RunningServer, mix: Mix, requests: int) -> Iterator[float]:
    for step in range(1, STEPS + 1):
        while mix.count < requests * step / STEPS:
            run(service.address, mix.next_request, seconds=_SECONDS)
        yield memory(service.workers())


def endurance_promises(endurance: Endurance) -> Iterator[Promise]:
    """Yield what a worker must keep to that has answered much."""
    name = f"a worker after {endurance.requests:,} mixed requests"
    largest = max(endurance.memory)
    yield Promise(f"memory of {name}", "under 120 MB", f"{largest:.0f} MiB", largest < MAX_WORKER)
    yield Promise(
        f"memory that {name} has gained in the second half",
        f"under {MAX_GROWN:.0f} MiB",
        f"{endurance.grown:.1f} MiB",
        endurance.grown < MAX_GROWN,
    )
