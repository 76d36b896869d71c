"""What the workers of the web server tell each other."""

from __future__ import annotations

import pytest

from cms.web import worker_table
from cms.web.worker_table import MAX_WORKERS, WorkerTable


def test_a_worker_knows_the_connections_of_those_that_serve() -> None:
    table = WorkerTable()
    first, second, starting = (table.new_entry() for _ in range(3))
    first.publish(7)
    second.publish(4)
    assert first.is_above_another(5)
    assert starting.is_above_another(5)
    assert not second.is_above_another(5)
    second.end()
    assert not first.is_above_another(5)


def test_a_killed_worker_counts_only_until_its_numbers_are_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = WorkerTable()
    killed = table.new_entry()
    other = table.new_entry()
    killed.publish(0)
    assert other.is_above_another(1)
    monkeypatch.setattr(worker_table, "STALE_SECONDS", -1.0)
    assert not other.is_above_another(1)


def test_a_worker_that_outlives_very_many_others_keeps_an_entry_of_its_own() -> None:
    table = WorkerTable()
    lasting = table.new_entry()
    lasting.publish(5)
    for _ in range(3 * MAX_WORKERS):
        replaced = table.new_entry()
        replaced.publish(7)
        assert replaced.is_above_another(6)
        replaced.end()


def test_more_workers_than_entries_share_some() -> None:
    table = WorkerTable()
    entries = [table.new_entry() for _ in range(MAX_WORKERS)]
    for entry in entries:
        entry.publish(1)
    further = table.new_entry()
    further.publish(0)
    assert entries[1].is_above_another(1)
