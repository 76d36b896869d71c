"""`cms index --words`: indexes of the whole words in searched texts, for pages by relevance."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cms.cli import cms
from tests.client import Client
from tests.things import Stage, Table, field, table

INDEXES = """SELECT count(*) FROM pg_indexes
WHERE tablename = '{0}' AND indexdef LIKE '%regexp_split_to_array%'"""


@pytest.fixture
def shell(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    return CliRunner(env={"DATABASE_URL": stage.dsn, "SECRET": "only-for-tests-" * 3})


@pytest.fixture
def things(admin: Client) -> Table:
    fields = (
        field("title", "string"),
        field("body", "text"),
        {**field("notes", "text"), "meta": {"searchable": False}},
        field("size", "integer"),
    )
    return table(admin, *fields, searchable=True)


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
