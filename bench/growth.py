"""How the cost of a read grows with the rows of a collection, and with the depth of the request."""

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
from bench.serving import RunningServer
from bench.stage import sender
from bench.wire import exchange, request

SIZES = (10_000, 100_000, 1_000_000)
LARGE = (*SIZES, 10_000_000)

DEPTHS = ("id,name", "id,articles.id", "id,articles.tags.id", "id,articles.tags.tags_id.name")
_AUTHORS_OF_A_REQUEST = 5


@dataclass(frozen=True, slots=True)
class Size:
    """Milliseconds of one item and of a sorted page of 25, in a collection of so many rows."""

    rows: int
    item: float
    page: float


@dataclass(frozen=True, slots=True)
class Depth:
    """Milliseconds of an answer with so many levels, and how many items it holds."""

    depth: int
    items: int
    took: float


def by_size(
    service: RunningServer, dsn: str, *, tokens: Tokens, sizes: tuple[int, ...], length: Length
) -> list[Size]:
    """Measure one item and a page in collections of different sizes.

    The sizes take turns; the member sends one request at a time.
    """
    names = [data.make_grown(sender(service, tokens.admin), dsn, rows) for rows in sizes]
    item_requests = [
        _item(name, rows, tokens.member) for name, rows in zip(names, sizes, strict=True)
    ]
    page_requests = [_page(name, tokens.member) for name in names]
    item_rounds: list[list[Round]] = [[] for _ in sizes]
    page_rounds: list[list[Round]] = [[] for _ in sizes]
    seconds = length.seconds / 2
    # In turns, so that other load of the machine is not taken for growth.
    for _ in range(length.rounds + 1):
        for index in range(len(sizes)):
            item_round = run(service.address, item_requests[index], seconds=seconds, connections=1)
            item_rounds[index].append(item_round)
            page_round = run(service.address, page_requests[index], seconds=seconds, connections=1)
            page_rounds[index].append(page_round)
    # The first round of each warms up.
    return [
        Size(rows, median_round(items[1:]).p50, median_round(pages[1:]).p50)
        for rows, items, pages in zip(sizes, item_rounds, page_rounds, strict=True)
    ]


def by_depth(service: RunningServer, *, token: str, length: Length) -> list[Depth]:
    """Measure five authors: alone, with articles, with the articles' tags, with the tags' names."""
    depths = []
    for depth, fields in enumerate(DEPTHS):
        message = request(
            "GET", f"/items/authors?limit={_AUTHORS_OF_A_REQUEST}&fields={fields}", token=token
        )
        answer = orjson.loads(exchange(service.address, message))["data"]

        def same_request(message: bytes = message) -> bytes:
            return message

        rounds = [
            run(service.address, same_request, seconds=length.seconds / 2, connections=1)
            for _ in range(length.rounds)
        ]
        depths.append(Depth(depth, items_in(answer), median_round(rounds).p50))
    return depths


def items_in(value: Any) -> int:
    """Count the objects of an answer, nested ones too."""
    if isinstance(value, list):
        return sum(items_in(item) for item in value)
    if isinstance(value, dict):
        return 1 + sum(items_in(item) for item in value.values())
    return 0


def _item(name: str, rows: int, token: str) -> Callable[[], bytes]:
    random = Random(1)
    target = f"/items/{name}/{{}}?fields=id,title,status,views"
    # One of the keys in steps of four, which the member's rule allows.
    return lambda: request("GET", target.format(random.randrange(rows // 4) * 4 + 1), token=token)


def _page(name: str, token: str) -> Callable[[], bytes]:
    numbers = count()
    target = f"/items/{name}?fields=id,title,published&sort=-published&limit=25&page={{}}"
    return lambda: request("GET", target.format(next(numbers) % 20 + 1), token=token)
