"""How the cost of a read grows with the depth of the request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from bench.load import run
from bench.rounds import Length, median_round
from bench.serving import RunningServer
from bench.wire import exchange, request

DEPTHS = ("id,name", "id,articles.id", "id,articles.tags.id", "id,articles.tags.tags_id.name")
_AUTHORS_OF_A_REQUEST = 5


@dataclass(frozen=True, slots=True)
class Depth:
    """Milliseconds of an answer with so many levels, and how many items it holds."""

    depth: int
    items: int
    took: float


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
