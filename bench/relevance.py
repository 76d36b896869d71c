"""Pages by relevance: the service's own statements, by the processor time that they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import psycopg

from bench import sentences
from bench.serving import RunningServer, serving
from bench.stage import BenchEnvironment, login
from bench.tables import row, rule
from bench.wire import call, request

ROWS = 1_000_000
QUICK_ROWS = 50_000
ROUNDS = 5
WEIGHTS = (1, 10)
"""What a word in the title counts: as much as in the body, or more."""

_COUNT = "SELECT count(*), count(*) FILTER (WHERE {title}) FROM {table} WHERE {condition}"
_NO_WORKERS = "SET max_parallel_workers_per_gather = 0"
_NANOSECONDS = 1_000_000
"""So many are a millisecond."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a statement costs: milliseconds of the server's process, and blocks that it reads."""

    milliseconds: float
    buffers: int


@dataclass(frozen=True, slots=True)
class RankedSearch:
    """A search: what it finds, and what its first page costs, also with indexes of words.

    `everything` is what ranking all rows costs, as it is printed for `-_relevance`.
    """

    label: str
    rows: int
    in_title: int
    everything: Cost
    equal: Cost
    title_first: Cost
    equal_by_words: Cost
    title_first_by_words: Cost


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the service, with its parameters."""

    text: bytes
    parameters: Sequence[str | None]


def searches() -> dict[str, str]:
    """Return searches for words of different frequency, and for parts of such words."""
    words = sentences.words()
    return {
        "a word in 22 % of the rows": words[0],
        "a word in 4 %": words[10],
        "a word in 2 %": words[37],
        "a word in 1.2 %": words[100],
        "a word in 0.3 %": words[1701],
        "a word in 0.09 %": words[-1],
        "two words in 22 % and 9 %": f"{words[0]} {words[1]}",
        "a word in 22 % and one in 1.2 %": f"{words[0]} {words[100]}",
        "a part of words in 10 %": words[1][1:6],
        "a part of words in 1.2 %": words[101][1:],
        "a part of words in 0.3 %": words[1701][1:],
        "a part of words in 0.09 %": words[-1][1:],
    }


def measure(stage: BenchEnvironment, *, rows: int = ROWS) -> list[RankedSearch]:
    """Make the collection and measure a page of each search, the statements in turns."""
    with serving("service", stage.folder, stage.environ) as service:
        token = login(service)
        sentences.make(service, stage.dsn, token=token, rows=rows)
        return measure_searches(service, stage, token)


def measure_searches(
    service: RunningServer, stage: BenchEnvironment, token: str
) -> list[RankedSearch]:
    """Measure a page of each search in the collection that is there, and make indexes of words."""
    words_by_label = searches()
    everything = _statements(service, token, "-_relevance")
    pages = list(_pages(service, token))
    sentences.index_words(stage.environ)
    pages += _pages(service, token)
    dsn = stage.dsn
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(_NO_WORKERS)
        return [
            _ranked(connection, label, words, [each[label] for each in (everything, *pages)])
            for label, words in words_by_label.items()
        ]


def relevance_table(measured: Sequence[RankedSearch]) -> str:
    """Return the table: milliseconds and buffers."""
    head = (
        "search",
        "rows, whole in the title",
        "everything ranked",
        "the page",
        "title first",
        "the page, by words",
        "title first, by words",
    )
    return "\n".join([row(head), rule(len(head)), *map(row, map(_cells, measured))])


def _pages(service: RunningServer, token: str) -> Iterator[Mapping[str, Statement]]:
    """Yield the statements of pages, for each weight of the title."""
    for weight in WEIGHTS:
        sentences.set_title_weight(service, token, weight)
        yield _statements(service, token, "_relevance")


def _statements(service: RunningServer, token: str, sort: str) -> Mapping[str, Statement]:
    return {
        label: _statement(service, token, f"search={quote(words)}&sort={sort}")
        for label, words in searches().items()
    }


def _statement(service: RunningServer, token: str, query: str) -> Statement:
    path = quote(f"/items/{sentences.NAME}?{query}&fields=id,title")
    explained = call(service.address, request("GET", f"/utils/explain?path={path}", token=token))
    return Statement(explained["statement"].encode(), explained["parameters"])


def _ranked(
    connection: psycopg.Connection, label: str, words: str, statements: Sequence[Statement]
) -> RankedSearch:
    rows, in_title = _count(connection, words)
    costs = list(_costs(connection, statements))
    return RankedSearch(label, rows, in_title, *costs)


def _count(connection: psycopg.Connection, words: str) -> tuple[int, int]:
    """Return how many rows hold each word, and how many hold each as a whole one in the title."""
    title = " AND ".join(f"' ' || title || ' ' LIKE '% {word} %'" for word in words.split())
    condition = " AND ".join(f"title || ' ' || body LIKE '%{word}%'" for word in words.split())
    statement = _COUNT.format(title=title, table=sentences.NAME, condition=condition)
    counted: tuple[int, int] | None = connection.execute(statement.encode()).fetchone()
    assert counted is not None
    return counted


def _costs(connection: psycopg.Connection, statements: Sequence[Statement]) -> Iterator[Cost]:
    """Yield the median costs of statements that run in turns."""
    milliseconds: list[list[float]] = [[] for _ in statements]
    for _ in range(ROUNDS):
        for statement, taken in zip(statements, milliseconds, strict=True):
            began = _processor_time(connection)
            connection.execute(statement.text, statement.parameters).fetchall()
            taken.append(_processor_time(connection) - began)
    for statement, taken in zip(statements, milliseconds, strict=True):
        yield Cost(median(taken), _buffers(connection, statement))


def _processor_time(connection: psycopg.Connection) -> float:
    """Return the milliseconds that the connection's process has run: other work does not count."""
    statistics = Path(f"/proc/{connection.info.backend_pid}/schedstat").read_text(encoding="ascii")
    return int(statistics.split()[0]) / _NANOSECONDS


def _buffers(connection: psycopg.Connection, statement: Statement) -> int:
    explain = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement.text
    explained = connection.execute(explain, statement.parameters).fetchone()
    assert explained is not None
    plan: dict[str, Any] = explained[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def _cells(search: RankedSearch) -> tuple[str, ...]:
    costs = (
        search.everything,
        search.equal,
        search.title_first,
        search.equal_by_words,
        search.title_first_by_words,
    )
    return (
        search.label,
        f"{search.rows:,}, {search.in_title:,}",
        *(f"{cost.milliseconds:,.1f} ms, {cost.buffers:,}" for cost in costs),
    )
