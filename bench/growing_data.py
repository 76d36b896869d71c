"""The collections of different sizes: few narrow columns, rows by SQL, an index for searches."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import psycopg

from bench import data
from bench.serving import RunningServer
from bench.wire import call, exchange, request

BUILD_SECONDS = 3_600.0
"""How long the indexes for searches may take, which a background job builds."""

_FIELDS: list[dict[str, object]] = [
    {"field": "title", "type": "string", "schema": {"max_length": 20}},
    {"field": "status", "type": "string", "schema": {"max_length": 20}},
    {"field": "number", "type": "integer"},
    {"field": "published", "type": "timestamp", "schema": {"is_indexed": True}},
]

# Each moment occurs once, and their order is not that of the rows: 10,000,019 is a prime.
_ROWS = """
INSERT INTO {name} (title, status, number, published)
SELECT
    left(md5(n::text), 12),
    (ARRAY['published', 'published', 'draft', 'archived'])[n % 4 + 1],
    n::bigint * 7919 % 10007,
    timestamptz '2020-01-01' + n::bigint * 7919 % 10000019 * interval '1 second'
FROM generate_series(1, {rows}) AS n
"""
_REMOVE = "DELETE FROM {name} WHERE id > {rows}"


@dataclass(frozen=True, slots=True)
class GrownCollection:
    """A collection with so many rows, whose keys are the numbers from 1 on."""

    name: str
    rows: int

    def remove_new_rows(self, connection: psycopg.Connection) -> None:
        """Remove what was created since: the collection keeps its size."""
        connection.execute(_REMOVE.format(name=self.name, rows=self.rows).encode())


def grow(service: RunningServer, dsn: str, *, token: str, rows: int) -> GrownCollection:
    """Make and fill a collection, which the member may read and write but for what is archived."""
    name = f"grown_{rows}"
    payload = {"collection": name, "schema": {}, "fields": [data.KEY, *_FIELDS]}
    exchange(service.address, request("POST", "/collections", token=token, payload=payload))
    fields = json.dumps(["id", *(field["field"] for field in _FIELDS)])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_ROWS.format(name=name, rows=rows).encode())
        for action in ("read", "create", "update"):
            connection.execute(data.GRANT, (name, action, data.RULE, fields))
    _make_searchable(service, token, name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"VACUUM (ANALYZE) {name}".encode())
    return GrownCollection(name, rows)


def _make_searchable(service: RunningServer, token: str, collection: str) -> None:
    """Return when the indexes are there."""
    path = f"/collections/{collection}"
    body = {"meta": {"searchable": True}}
    exchange(service.address, request("PATCH", path, token=token, payload=body))
    until = time.monotonic() + BUILD_SECONDS
    while _index_state(service, token, path) != "ready":
        assert time.monotonic() < until, "the indexes are not built"
        time.sleep(0.1)


def _index_state(service: RunningServer, token: str, path: str) -> str:
    record = call(service.address, request("GET", path, token=token))
    return str(record["meta"]["search_index"]["state"])
