"""A name means one thing (docs/code-map.md); exceptions are listed with their reasons."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.house.source_modules import source_modules

pytestmark = pytest.mark.release  # reads every module, which takes seconds in each worker

SHARED_TYPE_NAMES = {
    "ForeignKey": "of the catalogue, and of tables that an archive restores",
    "Table": "of statements, and of an archive",
    "Window": "of the rows of a page, and of a rate limit",
}

VAGUE_NAMES = frozenset(
    {
        *("ahead", "aim", "ask", "border", "circles", "clashes", "duties", "either", "found"),
        *("gates", "hand", "held", "judge", "keeper", "least", "letter", "licence", "mark"),
        *("most", "once", "past", "place", "places", "said", "settle", "settled", "shown"),
        *("told", "upkeep", "within"),
    }
)
"""Words that could name anything, or that stand for a term of the field."""


def test_no_name_is_a_word_that_could_be_anything() -> None:
    vague = []
    for module in source_modules("cms"):
        functions = {function.name for function in module.functions}
        for name in sorted(module.variables | functions):
            if name.strip("_").lower() in VAGUE_NAMES:
                vague.append(f"{module.path}: {name}")
    assert vague == []


def test_no_two_types_have_the_same_name() -> None:
    # A private class of the same name would be read as the public one.
    names = Counter(
        name.lstrip("_")
        for module in source_modules("cms")
        for name in (*module.classes, *module.type_aliases)
    )
    repeated = {name for name, count in names.items() if count > 1}
    assert repeated == set(SHARED_TYPE_NAMES)
