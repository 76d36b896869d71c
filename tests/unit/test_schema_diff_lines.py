"""Diffs of the structure as lines for people."""

from __future__ import annotations

from typing import Any

import pytest

from cms.cli.schema import diff_lines

FIELD = {"collection": "articles", "field": "title"}
NOTE = {"kind": "E", "path": ["meta", "note"], "lhs": None, "rhs": "A"}


@pytest.mark.parametrize(
    ("section", "entry", "lines"),
    [
        ("fields", FIELD | {"diff": [{"kind": "N", "rhs": {}}]}, ["+ field articles.title"]),
        ("fields", FIELD | {"diff": [{"kind": "D", "lhs": {}}]}, ["- field articles.title"]),
        (
            "fields",
            FIELD | {"renamed_from": "name", "diff": [NOTE]},
            ["~ field articles.title (renamed from name)", '    meta.note: null → "A"'],
        ),
        (
            "fields",
            FIELD | {"renamed_from": "name", "diff": []},
            ["~ field articles.title (renamed from name)"],
        ),
        (
            "relations",
            FIELD | {"related_collection": "authors", "diff": [{"kind": "N", "rhs": {}}]},
            ["+ relation articles.title → authors"],
        ),
        (
            "permissions",
            {"role": None, "collection": "articles", "action": "read"}
            | {"diff": [{"kind": "N", "rhs": {}}]},
            ["+ permission read articles for everybody"],
        ),
        (
            "settings",
            {"diff": [{"kind": "E", "path": ["project_name"], "lhs": "x" * 99, "rhs": 1}]},
            ["~ setting", '    project_name: "' + "x" * 59 + "… → 1"],
        ),
        (
            "collections",
            {"collection": "articles", "diff": [{"kind": "N", "path": ["meta", "a"], "rhs": 1}]},
            ["~ collection articles", "    meta.a: 1"],
        ),
    ],
)
def test_lines(section: str, entry: dict[str, Any], lines: list[str]) -> None:
    assert list(diff_lines({"hash": "", "diff": {section: [entry]}})) == lines
    assert list(diff_lines({})) == []
