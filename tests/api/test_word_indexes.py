"""`cms index --words`: indexes of the whole words in searched texts, for pages by relevance."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import make_conninfo

from cms.cli import cms
from cms.config import Config
from cms.schema.types.field_type import INDEXED_WORDS
from cms.structure.word_indexes import make_word_indexes
from tests.active_flows import work
from tests.client import Client
from tests.index_building import before_each_build
from tests.ranked_things import index_each_text
from tests.things import Stage, Table, field, table
from tests.waiting import eventually

INDEXES = """SELECT count(*) FROM pg_indexes
WHERE tablename = '{0}' AND indexdef LIKE '%regexp_split_to_array%'"""


LOOKS_AT_BUILDS = """SELECT count(*) > 0 FROM pg_stat_activity
WHERE query LIKE '%build.is_unique,%' AND query_start > '{0}' AND pid <> pg_backend_pid()"""


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


def indexed_words(stage: Stage, things: Table) -> list[list[str]]:
    """Return the texts of each index of words, as PostgreSQL prints them."""
    definitions = f"""SELECT coalesce(json_agg(indexdef ORDER BY indexname), '[]') FROM pg_indexes
    WHERE tablename = '{things.name}' AND indexdef LIKE '%regexp_split_to_array%'"""
    return [re.findall(r"system_fold\(\(?(\w+)", index) for index in stage.value(definitions)]


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
    assert count(stage, things) == 1
    assert words(shell, things.name, "--drop").output.endswith("1 dropped.\n")
    assert count(stage, things) == 0
    assert "regexp_split_to_array" not in statement(things)


def test_a_new_text_gets_its_index_when_the_command_runs_again(
    shell: CliRunner, stage: Stage, admin: Client, things: Table
) -> None:
    words(shell, things.name)
    admin.post(f"/fields/{things.name}", field("summary", "text"))
    assert words(shell, things.name).output.endswith("texts: 3 new.\n")
    assert indexed_words(stage, things) == [["title", "body", "summary"]]


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
    assert count(stage, things) == 1


@pytest.mark.release
def test_the_build_of_a_killed_command_is_waited_for(
    shell: CliRunner, stage: Stage, things: Table
) -> None:
    words_of_both = ", ".join(INDEXED_WORDS.replace("{0}", name) for name in ("title", "body"))
    build = f'CREATE INDEX CONCURRENTLY ON "{things.name}" USING gin ({words_of_both})'
    with ThreadPoolExecutor(2) as executor:
        with builds_waiting(stage):
            # PostgreSQL goes on with it, and nobody holds the lock of builds.
            left = executor.submit(stage.execute, build)
            wait_for_build(stage)
            begun = stage.value("SELECT clock_timestamp()")
            second = executor.submit(words, shell, things.name)
            eventually(lambda: bool(stage.value(LOOKS_AT_BUILDS.format(begun))))
        left.result()
        assert second.result().output.endswith("texts: 0 new.\n")
    assert count(stage, things) == 1


@pytest.mark.release
def test_to_end_the_search_interrupts_the_command_which_prints_that(
    shell: CliRunner, stage: Stage, admin: Client, things: Table
) -> None:
    make_words(stage, things)
    admin.post(f"/fields/{things.name}", field("summary", "text"))
    with ThreadPoolExecutor(1) as executor, builds_waiting(stage):
        interrupted = executor.submit(words, shell, things.name)
        wait_for_build(stage)
        changed = admin.patch(f"/collections/{things.name}", {"meta": {"searchable": False}})
        # It would wait for the build, which waits for the block.
        assert changed.status == 200
        result = interrupted.result()
    assert (result.exit_code, count(stage, things)) == (1, 0)
    assert "has interrupted the build" in result.output
    assert "DB_STATEMENT_TIMEOUT" not in result.output


def test_a_build_that_a_change_has_not_seen_is_of_the_texts_that_are_searched_now(
    shell: CliRunner,
    stage: Stage,
    admin: Client,
    things: Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The builder has looked, and has not begun: the change finds nothing to interrupt or to drop.
    changes = [
        partial(admin.patch, f"/fields/{things.name}/body", {"meta": {"searchable": False}}),
        partial(admin.post, f"/fields/{things.name}", field("summary", "text")),
    ]
    before_each_build(monkeypatch, lambda: changes and changes.pop()())
    assert words(shell, things.name).output.endswith("texts: 2 new.\n")
    assert indexed_words(stage, things) == [["title", "summary"]]


def test_no_index_is_left_where_the_search_has_ended_before_the_build_has_begun(
    shell: CliRunner, stage: Stage, admin: Client, things: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = partial(admin.patch, f"/collections/{things.name}", {"meta": {"searchable": False}})
    before_each_build(monkeypatch, end)
    result = words(shell, things.name)
    assert (result.exit_code, count(stage, things)) == (1, 0)
    assert "set meta.searchable" in result.output


def test_the_command_says_once_why_the_database_refuses_the_index(
    stage: Stage, things: Table, shell: CliRunner
) -> None:
    stage.execute(
        "CREATE ROLE words_guest LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO words_guest"
    )
    dsn = make_conninfo(stage.dsn, user="words_guest")
    result = shell.invoke(cms, ["index", "--words", things.name], env={"DATABASE_URL": dsn})
    assert result.output == (
        f"Error: The database is not available. The words of {things.name}.title have no index: "
        f"must be owner of table {things.name}.\n"
    )


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
    shell: CliRunner, stage: Stage, admin: Client, things: Table, settings: Config
) -> None:
    words(shell, things.name)
    admin.patch(f"/fields/{things.name}/body", {"meta": {"searchable": False}})
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": True}})
    assert count(stage, things) == 0
    work(stage, settings)
    assert indexed_words(stage, things) == [["title"]]
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": False}})
    assert count(stage, things) == 0


def test_a_text_may_change_its_type(
    shell: CliRunner, stage: Stage, admin: Client, things: Table, settings: Config
) -> None:
    words(shell, things.name)
    things.add({"title": "a cat", "body": "7"}, {"title": "concat", "body": "8"})
    changed = admin.patch(f"/fields/{things.name}/body", {"type": "integer"})
    assert changed.status == 200
    assert things.column("id", "search=cat&sort=_relevance") == [1, 2]
    work(stage, settings)
    assert indexed_words(stage, things) == [["title"]]
    assert things.column("id", "search=cat&sort=_relevance") == [1, 2]


def test_the_only_text_keeps_its_index_with_another_type(
    shell: CliRunner, stage: Stage, admin: Client, settings: Config
) -> None:
    things = table(admin, field("title", "string"), searchable=True)
    words(shell, things.name)
    assert admin.patch(f"/fields/{things.name}/title", {"type": "text"}).status == 200
    work(stage, settings)
    assert indexed_words(stage, things) == [["title"]]
    assert admin.patch(f"/fields/{things.name}/title", {"type": "json"}).status == 200
    work(stage, settings)
    assert indexed_words(stage, things) == []


def test_the_other_texts_keep_an_index_when_one_is_deleted(
    shell: CliRunner, stage: Stage, admin: Client, things: Table, settings: Config
) -> None:
    words(shell, things.name)
    admin.delete(f"/fields/{things.name}/title")
    work(stage, settings)
    assert indexed_words(stage, things) == [["body"]]


def test_a_collection_without_indexes_of_words_gets_none_when_a_text_is_deleted(
    stage: Stage, admin: Client, things: Table, settings: Config
) -> None:
    admin.delete(f"/fields/{things.name}/title")
    work(stage, settings)
    assert count(stage, things) == 0


def test_no_job_is_left_behind_a_collection_that_is_not_searched_any_more(
    shell: CliRunner, stage: Stage, admin: Client, things: Table, settings: Config
) -> None:
    words(shell, things.name)
    admin.delete(f"/fields/{things.name}/title")
    admin.patch(f"/collections/{things.name}", {"meta": {"searchable": False}})
    work(stage, settings)
    assert indexed_words(stage, things) == []


def test_indexes_of_each_text_serve_until_the_command_makes_one_of_all(
    shell: CliRunner, stage: Stage, things: Table
) -> None:
    index_each_text(stage, things.name, ["title", "body"])
    assert "regexp_split_to_array" in statement(things)
    assert words(shell, things.name).output.endswith("texts: 2 new.\n")
    assert indexed_words(stage, things) == [["title", "body"]]


def test_an_index_has_no_more_texts_than_postgresql_can_have(
    shell: CliRunner, stage: Stage, admin: Client
) -> None:
    names = [f"text_{number}" for number in range(33)]
    many = table(admin, *(field(name, "string") for name in names), searchable=True)
    assert words(shell, many.name).output.endswith("texts: 33 new.\n")
    assert sorted(map(len, indexed_words(stage, many))) == [1, 32]
    assert words(shell, many.name).output.endswith("texts: 0 new.\n")


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
