"""`cms index --words`: indexes of the whole words in searched texts, for pages by relevance."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from click.testing import CliRunner, Result

from cms.cli import cms
from cms.structure.word_indexes import make_word_indexes
from tests.client import Client
from tests.things import Stage, Table, field, table
from tests.waiting import eventually

INDEXES = """SELECT count(*) FROM pg_indexes
WHERE tablename = '{0}' AND indexdef LIKE '%regexp_split_to_array%'"""


@pytest.fixture
def things(admin: Client) -> Table:
    fields = (
        field("title", "string"),
        field("body", "text"),
        {**field("notes", "text"), "meta": {"searchable": False}},
        field("size", "integer"),
    )
    return table(admin, *fields, searchable=True)


@contextmanager
def builds_waiting(stage: Stage) -> Iterator[None]:
    """Have every build of an index wait for an older snapshot, within the block."""
    with psycopg.connect(stage.dsn) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        yield


def wait_for_build(stage: Stage) -> None:
    building = "SELECT phase LIKE 'waiting%' FROM pg_stat_progress_create_index"
    eventually(lambda: bool(stage.value(building)))


def make_words(stage: Stage, things: Table) -> list[str]:
    store = stage.admin.app.store
    return make_word_indexes(store.database, store.snapshots.current().catalogue, things.name)


def words(shell: CliRunner, *arguments: str) -> Result:
    return shell.invoke(cms, ["index", "--words", *arguments])


def count(stage: Stage, things: Table) -> int:
    return int(stage.value(INDEXES.format(things.name)))


def statement(things: Table) -> str:
    path = f"{things.path}?search=cat&sort=_relevance"
    return str(things.api.get("/utils/explain", path=path).data["statement"])


def test_each_searched_text_gets_an_index_once_and_loses_it_again(
    shell: CliRunner, stage: Stage, things: Table
) -> None:
    assert "regexp_split_to_array" not in statement(things)
    assert words(shell, things.name).output.endswith("texts: 2 new.\n")
    assert "regexp_split_to_array" in statement(things)
    assert words(shell, things.name).output.endswith("texts: 0 new.\n")
    assert count(stage, things) == 2
    assert words(shell, things.name, "--drop").output.endswith("2 dropped.\n")
    assert count(stage, things) == 0
    assert "regexp_split_to_array" not in statement(things)


def test_a_new_text_gets_its_index_when_the_command_runs_again(
    shell: CliRunner, stage: Stage, admin: Client, things: Table
) -> None:
    words(shell, things.name)
    admin.post(f"/fields/{things.name}", field("summary", "text"))
    assert words(shell, things.name).output.endswith("texts: 1 new.\n")
    assert count(stage, things) == 3


@pytest.mark.release
def test_two_commands_at_once_make_each_index_once(
    shell: CliRunner, stage: Stage, things: Table
) -> None:
    with ThreadPoolExecutor(2) as executor:
        with builds_waiting(stage):
            first = executor.submit(make_words, stage, things)
            wait_for_build(stage)
            second = executor.submit(words, shell, things.name)
            # It tries again and again to get the lock of builds.
            tries = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%pg_try_advisory%'"
            eventually(lambda: bool(stage.value(tries)))
        assert first.result() == ["title", "body"]
        assert second.result().output.endswith("texts: 0 new.\n")
    assert count(stage, things) == 2


@pytest.mark.release
def test_to_end_the_search_interrupts_the_command_which_prints_that(
    shell: CliRunner, stage: Stage, admin: Client, things: Table
) -> None:
    make_words(stage, things)
    admin.post(f"/fields/{things.name}", field("summary", "text"))
    with ThreadPoolExecutor(1) as executor, builds_waiting(stage):
        interrupted = executor.submit(words, shell, things.name)
        wait_for_build(stage)
        began = time.monotonic()
        changed = admin.patch(f"/collections/{things.name}", {"meta": {"searchable": False}})
        assert changed.status == 200
        # PostgreSQL looks for deadlocks after a second: none has helped here.
        assert time.monotonic() - began < 0.9
        result = interrupted.result()
    assert (result.exit_code, count(stage, things)) == (1, 0)
    assert "has interrupted the build" in result.output
    assert "DB_STATEMENT_TIMEOUT" not in result.output


def test_what_a_killed_command_has_left_is_dropped(
    shell: CliRunner, stage: Stage, things: Table
) -> None:
    words(shell, things.name)
    indexes = f"indrelid = '{things.name}'::regclass AND NOT indisprimary AND indexprs IS NOT NULL"
    stage.execute(f"UPDATE pg_index SET indisvalid = FALSE WHERE {indexes}")
    words(shell, things.name, "--drop")
    assert count(stage, things) == 0


def test_the_state_of_a_searchable_collection_does_not_wait_for_words(
    shell: CliRunner, admin: Client, things: Table
) -> None:
    ready = {"state": "ready", "progress": 1.0}
    record = f"/collections/{things.name}"
    assert admin.get(record).data["meta"]["search_index"] == ready
    words(shell, things.name)
    assert admin.get(record).data["meta"]["search_index"] == ready


def test_what_nobody_searches_any_more_loses_its_indexes(
    shell: CliRunner, stage: Stage, admin: Client, things: Table
) -> None:
    words(shell, things.name)
    admin.patch(f"/fields/{things.name}/body", {"meta": {"searchable": False}})
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    assert count(stage, things) == 1
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": False}})
    assert count(stage, things) == 0


def test_a_text_may_change_its_type(
    shell: CliRunner, stage: Stage, admin: Client, things: Table
) -> None:
    words(shell, things.name)
    things.add({"title": "a cat", "body": "7"}, {"title": "concat", "body": "8"})
    changed = admin.patch(f"/fields/{things.name}/body", {"type": "integer"})
    assert changed.status == 200
    assert count(stage, things) == 1
    assert things.column("id", "search=cat&sort=_relevance") == [1, 2]


def test_a_word_that_is_too_long_for_an_index_is_stored_and_found(
    shell: CliRunner, things: Table
) -> None:
    words(shell, things.name)
    long = "".join(f"{number:x}" for number in range(20_000))
    fits = "a" * 60
    next_to_fit = "a" * 61
    things.add({"body": f"{long} end"}, {"body": f"a {next_to_fit} end"}, {"body": f"{fits}, end"})
    things.add({"body": f"ending {fits}{fits}"})
    assert things.column("id", "search=end&sort=_relevance") == [1, 2, 3, 4]
    assert things.column("id", f"search={fits}&sort=_relevance") == [3, 2, 4]
    assert things.column("id", f"search={next_to_fit}&sort=_relevance") == [2, 4]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no_such_thing"], "There is no collection"),
        (["system_users"], "set meta.searchable"),
        ([], "--words needs a collection"),
        (["system_users", "email"], "--words needs a collection"),
    ],
)
def test_words_need_a_searchable_collection(
    shell: CliRunner, arguments: list[str], reason: str
) -> None:
    result = words(shell, *arguments)
    assert result.exit_code != 0
    assert reason in result.output
