"""Fixed statements are found by name, and a file with a slip in it is refused with its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cms
from cms.database.statements import read_statements, sql_folder, statement

PACKAGE = Path(cms.__file__).parent

TWO = """-- Everything about users.

-- name: find_user
-- One user by id.
-- Null when there is none.
SELECT id
  FROM users
 WHERE id = $1;  -- the key

-- name: count_users
-- How many there are.
SELECT count(*) FROM users;
"""


def read(folder: Path, **files: str) -> dict[str, str]:
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
    return dict(read_statements(folder))


def test_each_statement_has_its_name_and_its_text_without_the_description(tmp_path: Path) -> None:
    assert read(tmp_path, users=TWO) == {
        "find_user": "SELECT id\n  FROM users\n WHERE id = $1;  -- the key",
        "count_users": "SELECT count(*) FROM users;",
    }


def test_statements_of_several_files_are_found(tmp_path: Path) -> None:
    statements = read(
        tmp_path, one="-- name: one\n-- It.\nSELECT 1", two="-- name: two\n-- It.\nSELECT 2"
    )
    assert statements == {"one": "SELECT 1", "two": "SELECT 2"}


def test_a_folder_without_files_has_no_statements(tmp_path: Path) -> None:
    assert read(tmp_path) == {}


def test_a_name_that_two_files_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"two\.sql: there is another statement named 'same'"):
        read(tmp_path, one="-- name: same\n-- It.\nSELECT 1", two="-- name: same\n-- It.\nSELECT 2")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("-- name: bare\nSELECT 1", "'-- name: bare' is no"),
        ("-- name: Upper\n-- It.\nSELECT 1", "'-- name: Upper' is no"),
        (
            "-- name: first\n-- It.\nSELECT 1;\n-- Name : second\n-- It.\nSELECT 2",
            "'-- Name : second' is no",
        ),
        ("-- name: first\n-- name: second\n-- It.\nSELECT 2", "'-- name: second' is no"),
        ("SELECT 0;\n-- name: first\n-- It.\nSELECT 1", "there is text above"),
        ("-- name: first\n-- It.\n\n-- name: second\n-- It.\nSELECT 1", "'first' is empty"),
    ],
)
def test_a_statement_with_a_slip_in_its_form_is_refused(
    tmp_path: Path, text: str, fault: str
) -> None:
    with pytest.raises(ValueError, match=r"^faulty\.sql: .*" + fault):
        read(tmp_path, faulty=text)


def test_an_unknown_name_is_an_error_with_that_name() -> None:
    with pytest.raises(LookupError, match="no_such_statement"):
        statement("no_such_statement")


def test_the_statements_of_the_service_are_read() -> None:
    assert statement("list_migrations").startswith("SELECT number, name, sha256\n")


def test_the_folder_of_the_sql_files_holds_migrations_and_the_schema() -> None:
    assert (sql_folder() / "migrations").is_dir()
    assert (sql_folder() / "schema.sql").is_file()


def test_statements_and_the_code_that_runs_them_agree() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    there = set(read_statements(sql_folder() / "queries"))
    assert set(re.findall(r'statement\(\s*"([a-z0-9_]+)"', code)) - there == set(), (
        "run, but not there"
    )
    assert {name for name in there if f'"{name}"' not in code} == set(), "there, but never run"
