"""Paths from the caller and sorts of groups that docs/query-language.md names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.client import Client

PAGE = (Path(__file__).parent.parent.parent / "docs" / "query-language.md").read_text()
TABLE = PAGE[PAGE.index("| path | what it is |") : PAGE.index("A path that leads to many values")]
PATHS = re.findall(r"\$CURRENT_[A-Z]+(?:\.\w+)*", TABLE)
FIELDS_OF_THE_USER = re.findall(r"`\.(\w+)`", TABLE)


def to_one_or_many(path: str) -> str:
    return "_in" if ".users." in path else "_eq"


def test_the_table_of_paths_is_read() -> None:
    assert "$CURRENT_ROLE.parent.name" in PATHS
    assert "external_identifier" in FIELDS_OF_THE_USER


@pytest.mark.parametrize(
    "path", [*PATHS, *(f"$CURRENT_USER.{name}" for name in FIELDS_OF_THE_USER)]
)
def test_every_path_from_the_caller_in_the_documentation_exists(admin: Client, path: str) -> None:
    is_key = path.endswith((".id", ".role", "_ROLE"))
    field = "id" if is_key else "description"
    answer = admin.get("/users", **{f"filter[{field}][{to_one_or_many(path)}]": path})
    assert answer.status == 200, answer.text


@pytest.mark.parametrize("secret", ["password", "token", "tfa_secret", "auth_data"])
def test_no_path_from_the_caller_leads_to_a_secret(admin: Client, secret: str) -> None:
    assert (
        admin.get("/users", **{"filter[description][_eq]": f"$CURRENT_USER.{secret}"}).status == 400
    )


@pytest.mark.parametrize(
    "sort", ["-year(timestamp)", "action", "-count", "max.id", "-countDistinct.collection"]
)
def test_groups_are_sorted_by_what_they_are_grouped_by_or_an_aggregate(
    admin: Client, sort: str
) -> None:
    grouped = {"groupBy": "year(timestamp),action", "aggregate[count]": "*", "sort": sort}
    assert admin.get("/activity", **grouped).status == 200


@pytest.mark.parametrize("sort", ["collection", "user.email", "timestamp"])
def test_groups_are_sorted_by_nothing_else(admin: Client, sort: str) -> None:
    grouped = {"groupBy": "year(timestamp),action", "aggregate[count]": "*", "sort": sort}
    assert admin.get("/activity", **grouped).status == 400
