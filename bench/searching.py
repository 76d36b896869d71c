"""A search in 1,000,000 rows, before and after the collection is made searchable."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from urllib.parse import quote

import psycopg

from bench.search_indexes import make_searchable
from bench.serving import RunningServer
from bench.wire import exchange, request

ROWS = 1_000_000
WORDS = ("c4ca4238a0b9", "c81e728d9d4c", "eccbc87e4b5c", "a87ff679a2f3", "e4da3b7fbbce")
"""Parts of the MD5 sums of 1 to 5, each in one row of the table."""
PAGE = 100
"""Items of an answer without a limit."""

_TABLE = """
CREATE TABLE searched AS
SELECT n AS id, 'Sentence ' || md5(n::text) AS title, 'On ' || md5((n * 7)::text) AS note
FROM generate_series(1, {rows}) AS n;
ALTER TABLE searched ADD PRIMARY KEY (id);
ANALYZE searched;
"""


@dataclass(frozen=True, slots=True)
class Search:
    """Milliseconds of searches that read the whole table, and of the same ones by an index.

    `contains` is a filter that looks for the same part of a text in the same fields. `ranked` are
    searches for two words, by index and sorted by relevance; `frequent` is one for the word that
    every row has, sorted by relevance. `answered` is the change that makes the collection
    searchable.
    """

    rows: int
    scan: float
    contains: float
    index: float
    ranked: float
    frequent: float
    answered: float


def measure(service: RunningServer, dsn: str, *, token: str, rows: int = ROWS) -> Search:
    """Measure searches for words that occur in one row each."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_TABLE.format(rows=rows).encode())
    # So that the service notices a table that it did not make.
    exchange(service.address, request("POST", "/utils/cache/clear", token=token))
    scan = _milliseconds(service, token, "search={}")
    contains = _milliseconds(
        service, token, "filter[_or][0][title][_contains]={0}&filter[_or][1][note][_contains]={0}"
    )
    answered = make_searchable(service, token, "searched")
    index = _milliseconds(service, token, "search={}")
    ranked = _milliseconds(service, token, "search=sentence+{}&sort=_relevance")
    frequent = _milliseconds(service, token, "search=sentence&sort=_relevance", count=PAGE)
    return Search(rows, scan, contains, index, ranked, frequent, answered)


def _milliseconds(service: RunningServer, token: str, query: str, *, count: int = 1) -> float:
    """Return the median of a query for each of the words; each answer has `count` items."""
    milliseconds = []
    for word in WORDS:
        text = quote(query.format(word), safe="=&+")
        message = request("GET", f"/items/searched?{text}&fields=id", token=token)
        began = time.perf_counter()
        answer = exchange(service.address, message)
        milliseconds.append((time.perf_counter() - began) * 1000)
        assert answer.count(b'"id"') == count, answer
    return median(milliseconds)
