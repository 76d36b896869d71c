"""/server/specs/types: types of the collections for programs, as the caller sees them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import get_type_hints

import pytest
from mypy import api as mypy

from tests.client import Client
from tests.members import may, member
from tests.sdk.test_typescript import make_collections
from tests.things import Stage, field
from tests.things import make_collections as make_collections_of

PYTHON = "/server/specs/types?language=python"
TYPESCRIPT = "/server/specs/types?language=typescript"


@pytest.fixture(scope="module", autouse=True)
def collections(stage: Stage) -> None:
    make_collections(stage)


def types(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status == 200, answer
    return answer.text


@pytest.mark.parametrize("query", ["", "?language=", "?language=cobol", "?language=Python"])
def test_a_language_that_is_missing_or_unknown_is_refused(stage: Stage, query: str) -> None:
    answer = stage.admin.get(f"/server/specs/types{query}")
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


def test_typescript_has_an_interface_for_each_collection(stage: Stage) -> None:
    printed = types(stage.admin, TYPESCRIPT)
    assert interface(printed, "BlogPosts") == {
        "id: number",
        "title: string | null",
        "class: string | null",
        "tags: string[] | null",
        'score: number | "NaN" | "Infinity" | "-Infinity" | null',
        "data: unknown",
        "author: number | Authors | null",
        "editor: string | SystemUsers | null",
        "comments: number[] | Comments[]",
        'mood: "glad" | "sad" | null',
        '"a b": string | null',
    }
    # The SDK knows dates by this type.
    assert interface(printed, "Schema2") == {"id: number", 'from: "datetime" | (string & {})'}
    schema = interface(printed, "Schema")
    assert {"blog_posts: BlogPosts[]", "front: Front", '"1st": Type1st[]'} <= schema
    assert {'"blog-posts": BlogPosts2[]', "schema: Schema2[]"} <= schema


def interface(printed: str, name: str) -> set[str]:
    body = printed.split(f"export interface {name} {{\n")[1].split("}\n")[0]
    return {line.strip().removesuffix(";") for line in body.splitlines()}


@pytest.mark.release
def test_python_passes_mypy_and_types_rows(stage: Stage, tmp_path: Path) -> None:
    Path(tmp_path, "content.py").write_text(types(stage.admin, PYTHON))
    right = """
        from content import Authors, BlogPosts, Front, None2, Type1st

        author: Authors = {"name": "Ada"}
        post: BlogPosts = {"id": 1, "class": "x", "author": author, "comments": [1, 2], "a b": None}
        title: str | None = post["title"]
        tags: list[str] | None = post["tags"]
        empty: None2 = {"import": True}
        first: Type1st = {"id": 1}
        front: Front = {}
    """
    assert problems(tmp_path, right) == []
    wrong = """
        from content import BlogPosts

        post: BlogPosts = {"id": "x"}
        other: BlogPosts = {"nothing": 1}
        moody: BlogPosts = {"mood": "angry"}
        post["title"].upper()
    """
    assert len(problems(tmp_path, wrong)) == 4


def problems(folder: Path, program: str) -> list[str]:
    file = folder / "program.py"
    file.write_text(dedent(program))
    options = ["--strict", "--no-incremental", "--config-file=", "--no-error-summary"]
    cache = f"--cache-dir={folder}/cache"
    output, errors, _ = mypy.run([*options, cache, str(folder / "content.py"), str(file)])
    assert errors == ""
    return [line for line in output.splitlines() if ": error: " in line]


def test_python_is_run_without_a_fault(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "printed_content.py").write_text(types(stage.admin, PYTHON))
    monkeypatch.syspath_prepend(str(tmp_path))
    content = import_module("printed_content")
    assert {"id", "title", "class", "a b"} <= set(get_type_hints(content.BlogPosts))
    assert set(get_type_hints(content.BlogPosts2)) == {"id", "__x", "int"}


@pytest.mark.parametrize("path", [PYTHON, TYPESCRIPT])
def test_types_show_what_the_caller_may_read_and_nothing_else(stage: Stage, path: str) -> None:
    assert "BlogPosts" not in types(stage.anonymous, path)
    caller = member(stage, may("blog_posts", "id", "author"), may("comments", action="create"))
    printed = types(caller, path)
    assert "BlogPosts" in printed
    for hidden in ("title", "Authors", "Comments", "SystemUsers", "Front", "mood"):
        assert hidden not in printed, hidden


@pytest.mark.release
def test_a_reference_is_null_where_its_row_may_be_hidden_or_missing(stage: Stage) -> None:
    make_collections_of(
        stage.admin,
        {
            "teams": [field("name", "string")],
            "players": [
                field("team", "integer", is_nullable=False),
                field("coach", "integer", is_nullable=False),
            ],
        },
        [("players", "team", "teams", {}), ("players", "coach", "teams", {})],
    )
    drop_foreign_key(stage, "players", "coach")
    assert stage.admin.post("/items/teams", {"name": "secret"}).status == 200
    assert stage.admin.post("/items/players", {"team": 1, "coach": 2}).status == 200
    of_open = may("teams", permissions={"name": {"_eq": "open"}})
    limited = member(stage, may("players"), of_open)
    unlimited = member(stage, may("players"), may("teams"), of_open)
    keys_only = member(stage, may("players"))
    path = "/items/players?fields=team.name,coach.name"
    assert limited.get(path).data == [{"team": None, "coach": None}]
    assert unlimited.get(path).data == [{"team": {"name": "secret"}, "coach": None}]
    coach = "coach: number | Teams | null"
    assert {"team: number | Teams | null", coach} <= players_of(limited)
    for caller in (unlimited, stage.admin):
        assert {"team: number | Teams", coach} <= players_of(caller)
    assert {"team: number", "coach: number"} <= players_of(keys_only)


def drop_foreign_key(stage: Stage, table: str, column: str) -> None:
    """Leave a relation without its foreign key, as tables of other programs have them."""
    name = stage.value(
        "SELECT conname FROM pg_constraint WHERE contype = 'f' "
        f"AND conrelid = '{table}'::regclass AND pg_get_constraintdef(oid) LIKE '%({column})%'"
    )
    stage.execute(f'ALTER TABLE "{table}" DROP CONSTRAINT "{name}"')
    assert stage.admin.post("/utils/cache/clear").status == 204


def players_of(client: Client) -> set[str]:
    return interface(types(client, TYPESCRIPT), "Players")


def test_a_secret_is_a_text(stage: Stage) -> None:
    assert "password: string | null" in interface(types(stage.admin, TYPESCRIPT), "SystemUsers")


def test_types_that_the_client_has_are_not_sent_again(stage: Stage) -> None:
    tag = stage.admin.get(TYPESCRIPT).headers["etag"]
    again = stage.admin.send("GET", TYPESCRIPT, **{"If-None-Match": tag})
    assert (again.status, again.content) == (304, b"")
    assert "content-type" not in again.headers
