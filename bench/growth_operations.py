"""The operations whose growth is measured, as data: a name, requests, and a reason to grow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import orjson

from bench.growing_data import GrownCollection
from bench.serving import RunningServer
from bench.wire import exchange, request, upload

IMPORTED_ROWS = 1_000
_PAGE = 25
_FIRST_PAGES = 4
_SECONDS = 3_600.0
"""How long it may take to get a cursor of the far end, by the number of the page before."""

NextRequest = Callable[[], bytes]
MakeRequests = Callable[[RunningServer, GrownCollection, str, Random], NextRequest]
"""Makes what makes requests: for a server, a collection, a token, and a source of numbers."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; `reason` says why its cost grows with the rows, None that it does not."""

    name: str
    requests: MakeRequests
    reason: str | None = None


def _reading(
    target: Callable[[GrownCollection, Random], str],
) -> MakeRequests:
    def requests(
        _service: RunningServer, collection: GrownCollection, token: str, random: Random
    ) -> NextRequest:
        return lambda: request("GET", target(collection, random), token=token)

    return requests


def _key(collection: GrownCollection, random: Random) -> int:
    """Return one of the keys in steps of four from 1 on, which the member's rule allows."""
    return random.randrange(collection.rows // 4) * 4 + 1


def _item(collection: GrownCollection, random: Random) -> str:
    return f"/items/{collection.name}/{_key(collection, random)}?fields=*"


def _sorted(collection: GrownCollection) -> str:
    return f"/items/{collection.name}?fields=id,title,published&sort=-published&limit={_PAGE}"


def _filtered_page(collection: GrownCollection, random: Random) -> str:
    minimum = random.randrange(5_000)
    return (
        f"{_sorted(collection)}&filter[status][_eq]=published&filter[number][_gte]={minimum}"
        f"&page={random.randrange(_FIRST_PAGES) + 1}"
    )


def _last_page(collection: GrownCollection) -> int:
    # Three rows of four are shown to the member.
    return collection.rows * 3 // 4 // _PAGE


def _far_page(collection: GrownCollection, random: Random) -> str:
    return f"{_sorted(collection)}&page={_last_page(collection) - random.randrange(3)}"


def _far_cursor(
    service: RunningServer, collection: GrownCollection, token: str, _random: Random
) -> NextRequest:
    page = _sorted(collection)
    before = f"{page}&page={_last_page(collection) - 1}&meta=next_cursor"
    answer = exchange(service.address, request("GET", before, token=token), timeout=_SECONDS)
    cursor = orjson.loads(answer)["meta"]["next_cursor"]
    message = request("GET", f"{page}&page[after]={cursor}", token=token)
    return lambda: message


def _search(collection: GrownCollection, random: Random) -> str:
    number = _key(collection, random)
    word = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()[:12]
    return f"/items/{collection.name}?search={word}&fields=id,title"


def _groups(collection: GrownCollection, _random: Random) -> str:
    return f"/items/{collection.name}?aggregate[count]=*&groupBy=status"


def _new_item(random: Random) -> dict[str, object]:
    return {
        "title": f"{random.getrandbits(48):012x}",
        "status": "draft",
        "number": random.randrange(10_007),
        "published": "2019-12-31T00:00:00Z",
    }


def _create(
    _service: RunningServer, collection: GrownCollection, token: str, random: Random
) -> NextRequest:
    target = f"/items/{collection.name}"
    return lambda: request("POST", target, token=token, payload=_new_item(random))


def _update(
    _service: RunningServer, collection: GrownCollection, token: str, random: Random
) -> NextRequest:
    def next_request() -> bytes:
        target = f"/items/{collection.name}/{_key(collection, random)}"
        payload = {"number": random.randrange(10_007)}
        return request("PATCH", target, token=token, payload=payload)

    return next_request


def _import(
    _service: RunningServer, collection: GrownCollection, token: str, random: Random
) -> NextRequest:
    items = [_new_item(random) for _ in range(IMPORTED_ROWS)]
    lines = [",".join(items[0]), *(",".join(map(str, item.values())) for item in items)]
    message = upload(
        f"/utils/import/{collection.name}",
        ("\n".join(lines) + "\n").encode(),
        token=token,
        media_type="text/csv",
    )
    return lambda: message


READS = (
    Operation("one item", _reading(_item)),
    Operation("a page with rule, filter and sort", _reading(_filtered_page)),
    Operation("the last page, by cursor", _far_cursor),
    Operation(
        "the last page, by number",
        _reading(_far_page),
        "the rows before it are read and left out",
    ),
    Operation(
        "search by its index",
        _reading(_search),
        "the index has a list of rows for each three letters, which grows with the rows",
    ),
    Operation("group and count", _reading(_groups), "every row is counted"),
)
WRITES = (
    Operation("create one", _create),
    Operation("update one", _update),
    Operation(f"import {IMPORTED_ROWS:,} rows", _import),
)
