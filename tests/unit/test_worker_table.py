"""What the workers of the web server tell each other."""

from __future__ import annotations

import pytest

from cms.web import worker_table
from cms.web.worker_table import MAX_WORKERS, WorkerTable


def test_a_worker_knows_the_connections_and_processors_of_those_that_serve() -> None:
    table = WorkerTable()
    first, second, starting = (table.new_entry() for _ in range(3))
    for entry, processor in ((first, 0), (second, 3), (starting, 5)):
        entry.publish_processor(processor)
    first.publish(7)
    second.publish(4)
    assert first.processors_of_others() == [3]
    assert starting.processors_of_others() == [0, 3]
    assert first.is_above_another(5)
    assert not second.is_above_another(5)
    second.end()
    assert first.processors_of_others() == []


def test_a_killed_worker_holds_its_processor_only_until_its_numbers_are_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = WorkerTable()
    killed = table.new_entry()
    other = table.new_entry()
    killed.publish_processor(1)
    killed.publish(0)
    assert other.processors_of_others() == [1]
    monkeypatch.setattr(worker_table, "STALE_SECONDS", -1.0)
    assert other.processors_of_others() == []


def test_a_worker_that_outlives_very_many_others_keeps_an_entry_of_its_own() -> None:
    table = WorkerTable()
    lasting = table.new_entry()
    lasting.publish_processor(1)
    lasting.publish(5)
    for _ in range(3 * MAX_WORKERS):
        replaced = table.new_entry()
        replaced.publish_processor(1)
        replaced.publish(5)
        assert lasting.processors_of_others() == replaced.processors_of_others() == [1]
        replaced.end()


def test_an_entry_that_was_used_before_tells_of_no_processor() -> None:
    table = WorkerTable()
    for _ in range(MAX_WORKERS):
        table.new_entry().publish_processor(1)
    assert table.new_entry().processor is None


def test_more_workers_than_entries_share_some() -> None:
    table = WorkerTable()
    entries = [table.new_entry() for _ in range(MAX_WORKERS)]
    for entry in entries:
        entry.publish(1)
    further = table.new_entry()
    further.publish(0)
    assert entries[1].is_above_another(1)
