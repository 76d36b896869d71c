"""What is measured, as data: the same question to the service and to its floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from bench.data import ARTICLES, ENTRIES, entry
from bench.wire import request


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request: its target, body and method."""

    target: str
    payload: object = None
    method: str = "GET"


RequestMaker = Callable[[int], RequestSpec]


@dataclass(frozen=True, slots=True)
class Case:
    """`service` and `floor` make a request for each number below `numbers`.

    `target` is the least ratio of the rates. In a case with `member` the service is called by a
    role with a rule and a list of fields.
    """

    name: str
    target: float
    numbers: int
    service: RequestMaker
    floor: RequestMaker
    writes: bool = False
    member: bool = False

    def requests(self, kind: str, token: str, *, seed: int) -> Callable[[], bytes]:
        """Return a function that makes requests; one seed gives both sides the same numbers."""
        random = Random(seed)
        make_spec = self.service if kind == "service" else self.floor

        def next_request() -> bytes:
            spec = make_spec(random.randrange(self.numbers))
            return request(spec.method, spec.target, token=token, payload=spec.payload)

        return next_request


def _get(template: str, *, step: int = 1, first: int = 0) -> RequestMaker:
    return lambda number: RequestSpec(template.format(number * step + first))


def _post(target: str, count: int | None = None) -> RequestMaker:
    if count is None:
        return lambda number: RequestSpec(target, entry(number), "POST")
    return lambda number: RequestSpec(
        target, [entry(number + offset) for offset in range(count)], "POST"
    )


def _patch(template: str, *, step: int = 1) -> RequestMaker:
    def make_spec(number: int) -> RequestSpec:
        payload = {"title": f"Changed to {number}", "views": number}
        return RequestSpec(template.format(number * step + 1), payload, "PATCH")

    return make_spec


PING = Case("ping", 0.6, 1, _get("/server/ping"), _get("/server/ping"))
"""Beside WSGI alone: what the server itself takes, and what is logged, limited and counted."""

PAGES = 40  # people rarely read further

_COLUMNS = "id,title,body,status,views,rating,published,author"
_LIST = "/items/articles?limit=25&fields="
_FILTER = "filter[status][_eq]=published&filter[views][_gte]="

# Keys in steps of four from the first one on are of published articles, which the rule allows.
READS = (
    Case(
        "one item by key",
        0.7,
        ARTICLES // 4,
        _get(f"/items/articles/{{}}?fields={_COLUMNS}", step=4, first=1),
        _get("/one/{}", step=4, first=1),
    ),
    Case(
        "25 rows of 4 columns",
        0.7,
        PAGES,
        _get(_LIST + "id,title,status,views&page={}", first=1),
        _get("/page/{}", step=25),
    ),
    Case(
        "25 rows, filter, sort, to-one",
        0.7,
        8_000,
        _get(_LIST + f"id,title,published,author.name&sort=-published&{_FILTER}{{}}"),
        _get("/filtered/{}"),
    ),
    Case(
        "25 rows, to-one and many-to-many",
        0.7,
        PAGES,
        _get(_LIST + "id,title,author.name,tags.tags_id.name&page={}", first=1),
        _get("/nested/{}", step=25),
    ),
    Case(
        "group and count",
        0.7,
        1,
        _get("/items/articles?aggregate[count]=*&groupBy=status"),
        _get("/groups"),
    ),
    Case(
        "1,000 rows",
        0.7,
        50,
        _get("/items/articles?limit=1000&fields=id,title,status,views&page={}", first=1),
        _get("/many/{}", step=1000),
    ),
)


def _ruled(case: Case) -> Case:
    """Return the case for the member; the floor's statements hold the rule, written by hand."""

    def floor(number: int) -> RequestSpec:
        spec = case.floor(number)
        return replace(spec, target=f"/ruled{spec.target}")

    return replace(case, name=f"{case.name} · rule", floor=floor, member=True)


RULED_READS = tuple(_ruled(case) for case in READS)
CREATE_ONE = Case(
    "create one", 0.6, 1_000_000, _post("/items/entries"), _post("/entries"), writes=True
)
CREATE_100 = Case(
    "create 100 in one POST",
    0.6,
    1_000_000,
    _post("/items/entries", 100),
    _post("/entries", 100),
    writes=True,
)
WRITES = (
    CREATE_ONE,
    Case(
        "update one", 0.6, ENTRIES, _patch("/items/entries/{}"), _patch("/entries/{}"), writes=True
    ),
    CREATE_100,
    replace(CREATE_ONE, name="create one · rule", member=True),
    Case(
        "update one · rule",
        0.6,
        ENTRIES // 4,
        _patch("/items/entries/{}", step=4),
        _patch("/entries/{}", step=4),
        writes=True,
        member=True,
    ),
)
