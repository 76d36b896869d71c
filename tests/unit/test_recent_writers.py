"""Who has written is remembered for a time, by user, and by address for those without one."""

from __future__ import annotations

from datetime import timedelta

from cms.rate_limits.shared_table import SharedTable
from cms.store.identity import ClientInfo, Identity
from cms.store.recent_writers import RecentWriters

HERE = ClientInfo(ip="192.0.2.1")
THERE = ClientInfo(ip="192.0.2.2")
LAG = timedelta(seconds=10)


def writers() -> RecentWriters:
    return RecentWriters(SharedTable(buckets=16), None, lag=LAG, secret="s")


def test_a_user_is_remembered_wherever_the_next_request_comes_from() -> None:
    recent = writers()
    recent.note(Identity(user="ann", client=HERE))
    assert recent.includes(Identity(user="ann", client=THERE))
    assert not recent.includes(Identity(user="bob", client=HERE))
    assert not recent.includes(Identity(client=HERE))


def test_whoever_logs_in_is_remembered_by_address() -> None:
    recent = writers()
    recent.note(Identity(client=HERE))
    assert recent.includes(Identity(cookie="a session", client=HERE))
    assert not recent.includes(Identity(cookie="a session", client=THERE))


def test_a_writer_is_forgotten_after_the_lag_and_remembered_from_the_last_write() -> None:
    now = [1000.0]
    table = SharedTable(buckets=16, clock=lambda: now[0])
    recent = RecentWriters(table, None, lag=LAG, secret="s")
    ann = Identity(user="ann", client=HERE)
    recent.note(ann)
    now[0] += 9
    recent.note(ann)
    now[0] += 9
    assert recent.includes(ann)
    now[0] += 1
    assert not recent.includes(ann)
