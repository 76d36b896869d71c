"""How cost grows: with the rows of a collection, and with the depth that a request opens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

import orjson

from bench import data
from bench.load import Round, run
from bench.rounds import Length, Tokens, median_round
from bench.serving import Running
from bench.stage import sender
from bench.wire import exchange, request

SIZES = (10_000, 100_000, 1_000_000)
LARGE = (*SIZES, 10_000_000)

DEPTHS = ("id,name", "id,articles.id", "id,articles.tags.id", "id,articles.tags.tags_id.name")
_AUTHORS_ASKED = 5


@dataclass(frozen=True, slots=True)
class Size:
    """The milliseconds of one item and of a sorted page of 25 in a collection of so many rows."""

    rows: int
    item: float
    page: float


@dataclass(frozen=True, slots=True)
class Depth:
    """The milliseconds of an answer that opens so many levels, and how many items it holds."""

    depth: int
    items: int
    took: float


def by_size(
    service: Running, dsn: str, *, tokens: Tokens, sizes: tuple[int, ...], length: Length
) -> list[Size]:
    """Measure one item and a page in collections of different sizes, in turns, one request of the
    member at a time.
    """
    names = [data.make_grown(sender(service, tokens.admin), dsn, rows) for rows in sizes]
    asks = [
        (_item(*made, tokens.member), _page(made[0], tokens.member))
        for made in zip(names, sizes, strict=True)
    ]
    rounds: list[tuple[list[Round], list[Round]]] = [([], []) for _ in sizes]
    for _ in range(length.rounds + 1):
        for found, both in zip(rounds, asks, strict=True):
            for kept, ask in zip(found, both, strict=True):
                kept.append(run(service.address, ask, seconds=length.seconds / 2, connections=1))
    measured = [
        [median_round(kept[1:]).p50 for kept in found] for found in rounds
    ]  # the first warmed up
    return [Size(rows, item, page) for rows, (item, page) in zip(sizes, measured, strict=True)]


def by_depth(service: Running, *, token: str, length: Length) -> list[Depth]:
    """Measure five authors alone, with their articles, with those articles' tags, with those tags'
    names.
    """
    found = []
    for depth, fields in enumerate(DEPTHS):
        message = request(
            "GET", f"/items/authors?limit={_AUTHORS_ASKED}&fields={fields}", token=token
        )
        answer = orjson.loads(exchange(service.address, message))["data"]

        def again(message: bytes = message) -> bytes:
            return message

        took = [
            run(service.address, again, seconds=length.seconds / 2, connections=1)
            for _ in range(length.rounds)
        ]
        found.append(Depth(depth, items_in(answer), median_round(took).p50))
    return found


def items_in(value: Any) -> int:
    """Count the objects of an answer, nested ones too."""
    if isinstance(value, list):
        return sum(items_in(item) for item in value)
    return 1 + sum(items_in(item) for item in value.values()) if isinstance(value, dict) else 0


def _item(name: str, rows: int, token: str) -> Callable[[], bytes]:
    random = Random(1)
    target = f"/items/{name}/{{}}?fields=id,title,status,views"
    return lambda: request("GET", target.format(random.randrange(rows // 4) * 4 + 1), token=token)


def _page(name: str, token: str) -> Callable[[], bytes]:
    numbers = count()
    target = f"/items/{name}?fields=id,title,published&sort=-published&limit=25&page={{}}"
    return lambda: request("GET", target.format(next(numbers) % 20 + 1), token=token)
