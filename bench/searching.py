"""A search in 1,000,000 rows, before and after the collection is made searchable."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import psycopg

from bench.serving import RunningServer
from bench.wire import exchange, request

ROWS = 1_000_000
WORDS = ("c4ca4238a0b9", "c81e728d9d4c", "eccbc87e4b5c", "a87ff679a2f3", "e4da3b7fbbce")
"""Parts of the MD5 sums of 1 to 5, each in one row of the table."""

_TABLE = """
CREATE TABLE searched AS
SELECT n AS id, 'Sentence ' || md5(n::text) AS title, 'On ' || md5((n * 7)::text) AS note
FROM generate_series(1, {rows}) AS n;
ALTER TABLE searched ADD PRIMARY KEY (id);
ANALYZE searched;
"""


@dataclass(frozen=True, slots=True)
class Search:
    """Milliseconds of a search that reads the whole table, and of the same search by an index."""

    rows: int
    scan: float
    index: float


def measure(service: RunningServer, dsn: str, *, token: str, rows: int = ROWS) -> Search:
    """Measure searches for words that occur in one row each."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_TABLE.format(rows=rows).encode())
    # So that the service notices a table that it did not make.
    exchange(service.address, request("POST", "/utils/cache/clear", token=token))
    scan = _search_milliseconds(service, token)
    body = {"meta": {"searchable": True}}
    exchange(service.address, request("PATCH", "/collections/searched", token=token, payload=body))
    return Search(rows, scan, _search_milliseconds(service, token))


def _search_milliseconds(service: RunningServer, token: str) -> float:
    """Return the median of a search for each of the words."""
    milliseconds = []
    for word in WORDS:
        message = request("GET", f"/items/searched?search={word}&fields=id", token=token)
        began = time.perf_counter()
        answer = exchange(service.address, message)
        milliseconds.append((time.perf_counter() - began) * 1000)
        assert answer.count(b'"id"') == 1, answer
    return median(milliseconds)
