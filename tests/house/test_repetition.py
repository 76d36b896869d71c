"""What is known stands in one place (docs/code-map.md)."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.house.source_modules import source_modules

pytestmark = pytest.mark.release  # reads every module, which takes seconds in each worker

SHORT = 60
"""Characters of code that are no repetition yet: two functions may well call the same third one."""
SHORT_PATTERN = 12
"""Characters of a regular expression with its quotes that are no repetition yet, as in `\\s`."""

ALIKE_BY_CHANCE = {
    "case when {0} then {1} end": "templates of SQL",
    "unnest({0}) with ordinality as r ({1})": "templates of SQL",
    "how deep below they are (ldap)": "users, and groups",
    "is not there; make it, or take the setting back": "relations, and collections",
    "it must be a whole number": "texts, and numbers",
    "it must be an array of strings": "settings, and values",
    "the moment is out of range": "days, and months",
    "unexpected fault of the web server": "in a request, and between requests",
}
"""Sentences that stand twice because they are about different things, with these things."""


def test_no_function_stands_twice() -> None:
    modules_of: dict[str, list[str]] = defaultdict(list)
    for module in source_modules("cms"):
        for function in module.functions:
            if len(function.body) >= SHORT:
                modules_of[function.body].append(f"{module.path}: {function.name}")
    assert [names for names in modules_of.values() if len(names) > 1] == []


def test_no_regular_expression_stands_twice() -> None:
    modules_of: dict[str, list[str]] = defaultdict(list)
    for module in source_modules("cms"):
        for pattern in module.patterns:
            if len(pattern) >= SHORT_PATTERN:
                modules_of[pattern].append(str(module.path))
    assert {pattern: names for pattern, names in modules_of.items() if len(names) > 1} == {}


def test_no_sentence_stands_twice() -> None:
    modules_of: dict[str, list[str]] = defaultdict(list)
    for module in source_modules("cms"):
        for sentence in module.sentences:
            if sentence not in ALIKE_BY_CHANCE:
                modules_of[sentence].append(str(module.path))
    assert {sentence: names for sentence, names in modules_of.items() if len(names) > 1} == {}
