"""The floor: a bare application with SQL written by hand, the least work for the same answers.

It parses no queries, checks no rights, no structure and no values, and has no log. It shares with
the service what any sound service has: prepared statements, a pool, orjson, sessions in UTC with a
time limit.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import falcon
import orjson
import psycopg
from psycopg_pool import ConnectionPool

from cms.config import Config
from cms.database.session_setup import session_options
from cms.database.statements import read_statements

Row = tuple[Any, ...]

SQL = read_statements(Path(__file__).parent)
# What the member's rule leaves, in place of the table and under the table's name or alias.
VISIBLE = "FROM (SELECT * FROM articles WHERE status <> 'archived') AS "
RULED = {
    name: re.sub(
        r"FROM articles(?: AS (a))?\b", lambda match: VISIBLE + (match[1] or "articles"), text
    )
    for name, text in SQL.items()
}
"""The same statements with the member's rule, as one would write them by hand."""

WRITTEN = ("title", "body", "status", "views", "author")
ENTRY = ("id", *WRITTEN)
USER_ID = "6b1f0c1e-8f57-4f5e-9d3a-0d4f6a3c2b11"
PONG = b"pong"
PONG_HEADERS = [("content-type", "text/plain"), ("content-length", str(len(PONG)))]
SUMMARY_FIELDS = ("id", "title", "status", "views")


class RowPool:
    """A pool of connections, opened at the first request, which is after the fork."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._pool: ConnectionPool[psycopg.Connection[Row]] | None = None

    def fetch(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        pool = self._pool or self._open()
        with pool.connection() as connection:
            return connection.execute(statement, values, prepare=True, binary=True).fetchall()

    def _open(self) -> ConnectionPool[psycopg.Connection[Row]]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._config.database_url or "",
                    min_size=0,
                    max_size=self._config.database_pool_size,
                    kwargs={
                        "autocommit": True,
                        "cursor_factory": psycopg.RawCursor,
                        "options": session_options(
                            self._config.db_statement_timeout, read_only=False
                        ),
                    },
                    configure=_configure,
                    open=True,
                )
        return self._pool


class _ReadyJson(psycopg.adapt.Loader):
    """Passes nested parts on as JSON, without parsing them, as the service does."""

    format = psycopg.pq.Format.BINARY

    def load(self, data: psycopg.abc.Buffer) -> object:
        return orjson.Fragment(bytes(data))


def _configure(connection: psycopg.Connection[Row]) -> None:
    connection.adapters.register_loader("json", _ReadyJson)


def _send(response: falcon.Response, names: Sequence[str], rows: Sequence[Row]) -> None:
    # To say `strict` would take half as long again.
    items = [dict(zip(names, row)) for row in rows]  # noqa: B905
    response.data = orjson.dumps({"data": items})


class Article:
    NAMES = ("id", "title", "body", "status", "views", "rating", "published", "author")

    def __init__(self, rows: RowPool, statement: str) -> None:
        self._rows = rows
        self._statement = statement

    def on_get(self, request: falcon.Request, response: falcon.Response, key: int) -> None:
        row = self._rows.fetch(self._statement, (key,))[0]
        response.data = orjson.dumps({"data": dict(zip(self.NAMES, row, strict=True))})


class List:
    """A list whose one parameter is a number in the path."""

    def __init__(self, rows: RowPool, statement: str, names: Sequence[str]) -> None:
        self._rows = rows
        self._statement = statement
        self._names = names

    def on_get(self, request: falcon.Request, response: falcon.Response, number: int) -> None:
        _send(response, self._names, self._rows.fetch(self._statement, (number,)))


class Groups:
    def __init__(self, rows: RowPool, statement: str) -> None:
        self._rows = rows
        self._statement = statement

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        _send(response, ("status", "count"), self._rows.fetch(self._statement))


def _request_origin(request: falcon.Request) -> tuple[str | None, ...]:
    return USER_ID, request.remote_addr, request.user_agent, request.get_header("Origin")


class Entries:
    def __init__(self, rows: RowPool) -> None:
        self._rows = rows

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = orjson.loads(request.bounded_stream.read())
        if isinstance(payload, list):
            columns = [[item[name] for item in payload] for name in WRITTEN]
            _send(
                response,
                ENTRY,
                self._rows.fetch(SQL["create_many"], [*_request_origin(request), *columns]),
            )
        else:
            row = self._rows.fetch(
                SQL["create"], [*_request_origin(request), *(payload[name] for name in WRITTEN)]
            )[0]
            response.data = orjson.dumps({"data": dict(zip(ENTRY, row, strict=True))})


class Entry:
    def __init__(self, rows: RowPool) -> None:
        self._rows = rows

    def on_patch(self, request: falcon.Request, response: falcon.Response, key: int) -> None:
        payload = orjson.loads(request.bounded_stream.read())
        row = self._rows.fetch(
            SQL["update"], (*_request_origin(request), key, payload["title"], payload["views"])
        )[0]
        response.data = orjson.dumps({"data": dict(zip(ENTRY, row, strict=True))})


class Floor(falcon.App[falcon.Request, falcon.Response]):
    """Answers pings without Falcon, as little as WSGI allows: they show the speed of the server."""

    def __call__(self, env: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if env["PATH_INFO"] == "/server/ping":
            start_response("200 OK", PONG_HEADERS)
            return [PONG]
        return super().__call__(env, start_response)


def create_floor(config: Config) -> Floor:
    """Make the floor's application."""
    app = Floor()
    rows = RowPool(config)
    for prefix, statements in (("", SQL), ("/ruled", RULED)):
        _add_reads(app, rows, prefix, statements)
    app.add_route("/entries", Entries(rows))
    app.add_route("/entries/{key:int}", Entry(rows))
    app.add_static_route("/uploads", config.data_dir / "uploads")
    return app


def _add_reads(
    app: Floor,
    rows: RowPool,
    prefix: str,
    statements: Mapping[str, str],
) -> None:
    filtered = ("id", "title", "published", "author")
    nested = ("id", "title", "author", "tags")
    app.add_route(prefix + "/one/{key:int}", Article(rows, statements["one"]))
    app.add_route(prefix + "/page/{number:int}", List(rows, statements["page"], SUMMARY_FIELDS))
    app.add_route(prefix + "/many/{number:int}", List(rows, statements["many"], SUMMARY_FIELDS))
    app.add_route(prefix + "/filtered/{number:int}", List(rows, statements["filtered"], filtered))
    app.add_route(prefix + "/nested/{number:int}", List(rows, statements["nested"], nested))
    app.add_route(prefix + "/groups", Groups(rows, statements["groups"]))
