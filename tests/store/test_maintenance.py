"""`cms maintain`: months ahead are made, months too old go, and so does what has expired."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from cms.cli.setup import maintain
from cms.config import Config
from cms.database.maintenance import MaintenanceReport, run_maintenance

Connection = psycopg.Connection[tuple[Any, ...]]

LIFE = timedelta(minutes=15)
TABLES = ("system_activity", "system_revisions")


def months_ago(number: int) -> datetime:
    """Return the first moment of a month: 0 is this one."""
    now = datetime.now(UTC)
    year, month = divmod(now.year * 12 + now.month - 1 - number, 12)
    return datetime(year, month + 1, 1, tzinfo=UTC)


def make_month(connection: Connection, number: int) -> str:
    """Make the partitions of a month in the past, each with a row at
    its very end; return their suffix.
    """
    first = months_ago(number)
    last = months_ago(number - 1)
    for table in TABLES:
        bounds = f"FOR VALUES FROM ('{first}') TO ('{last}')"
        connection.execute(
            f"CREATE TABLE {table}_{first:%Y_%m} PARTITION OF {table} {bounds}".encode()
        )
    write(connection, last - timedelta(microseconds=1))
    return f"{first:%Y_%m}"


def write(connection: Connection, when: datetime) -> None:
    connection.execute(
        "INSERT INTO system_activity (action, collection, item, timestamp) VALUES ('x', 'x', '1', "
        "%s)",
        [when],
    )
    connection.execute(
        "INSERT INTO system_revisions (activity, collection, item, created) VALUES (1, 'x', '1', "
        "%s)",
        [when],
    )


def moments(connection: Connection) -> list[datetime]:
    rows = connection.execute(
        "SELECT timestamp FROM system_activity WHERE collection = 'x'"
        " UNION ALL SELECT created FROM system_revisions WHERE collection = 'x'"
    )
    return sorted(moment for (moment,) in rows)


@pytest.mark.parametrize("retention", ["2mo", "62d", "9w"])
def test_months_that_are_wholly_older_are_dropped(
    connection: Connection, dsn: str, retention: str
) -> None:
    suffixes = [make_month(connection, number) for number in (1, 2, 5, 30)]
    write(connection, months_ago(50))
    write(connection, months_ago(1))
    done = run_maintenance(dsn, retention=retention, access_life=LIFE)
    assert done.dropped_partitions == tuple(
        f"{table}_{suffix}" for table in TABLES for suffix in sorted(suffixes[2:])
    )
    assert done.deleted_rows == 2
    assert moments(connection)[0] >= months_ago(3)
    assert len(moments(connection)) == 6
    assert run_maintenance(dsn, retention=retention, access_life=LIFE) == MaintenanceReport(0, 0, 0)


def test_without_a_retention_everything_is_kept(connection: Connection, dsn: str) -> None:
    make_month(connection, 200)
    write(connection, months_ago(300))
    assert run_maintenance(dsn, retention=None, access_life=LIFE) == MaintenanceReport(0, 0, 0)
    assert run_maintenance(dsn, retention="30y", access_life=LIFE) == MaintenanceReport(0, 0, 0)
    assert len(moments(connection)) == 4


def test_the_coming_months_are_made(connection: Connection, dsn: str) -> None:
    connection.execute(f"DROP TABLE system_activity_{months_ago(-2):%Y_%m}".encode())
    assert run_maintenance(dsn, retention=None, access_life=LIFE).created_partitions == 1
    assert run_maintenance(dsn, retention=None, access_life=LIFE).created_partitions == 0


def test_what_has_expired_is_deleted(connection: Connection, dsn: str) -> None:
    connection.execute(
        "INSERT INTO system_sessions (\"user\", token, expires) SELECT id, 'x', "
        "now() + n * interval '1 hour'"
        " FROM system_users CROSS JOIN (VALUES (-2), (-1), (1)) AS s (n)"
    )
    connection.execute(
        "INSERT INTO system_idempotency (caller, key, request, created)"
        " VALUES ('a', 'old', 'x', now() - interval '25 hours'), ('a', 'new', 'x', "
        "now() - interval '23 hours')"
    )
    assert run_maintenance(dsn, retention=None, access_life=LIFE) == MaintenanceReport(
        0, deleted_sessions=2, deleted_answers=1
    )
    assert connection.execute("SELECT key FROM system_idempotency").fetchall() == [("new",)]


def test_several_at_once_do_it_once(connection: Connection, dsn: str) -> None:
    for number in (12, 13, 14):
        make_month(connection, number)
    with ThreadPoolExecutor(4) as threads:
        done = list(
            threads.map(lambda _: run_maintenance(dsn, retention="6mo", access_life=LIFE), range(4))
        )
    assert sorted(len(run.dropped_partitions) for run in done) == [0, 0, 0, 6]


def test_the_command_prints_what_it_did(
    config: Config, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = make_month(connection, 24)
    kept = replace(config, activity_retention="1y")
    maintain(kept)
    assert (
        capsys.readouterr().out
        == f"Dropped system_activity_{suffix}.\nDropped system_revisions_{suffix}.\n"
    )
    maintain(kept)
    assert capsys.readouterr().out == "There is nothing to do.\n"
