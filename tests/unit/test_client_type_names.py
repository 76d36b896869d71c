"""Names of the types of collections, whatever other programs have called their tables."""

from __future__ import annotations

import ast
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.client_types.client_model import ClientCollection
from cms.client_types.python import print_python
from cms.client_types.typescript import print_typescript

NAMES = st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1), unique=True)


@given(NAMES)
def test_python_has_one_type_for_each_collection(names: list[str]) -> None:
    assert len(set(python_types(names))) == len(names)


@pytest.mark.parametrize(
    ("names", "types"),
    [
        (["e\u0301", "\u00e9"], {"\u00c9", "\u00c92"}),
        (["a", "\uff41"], {"A", "A2"}),  # of the width of a Chinese letter
        (["\u2167"], {"VIII"}),
        (["blog_postTags"], {"BlogPostTags"}),
        (["*/", "'", "\u2028"], {"Type", "Type2", "Type3"}),
    ],
)
def test_letters_that_python_takes_for_equal_are_equal(names: list[str], types: set[str]) -> None:
    assert set(python_types(names)) == types
    for name in types:
        assert f"export interface {name} {{" in print_typescript(collections(names))


def python_types(names: list[str]) -> list[str]:
    """Return the names that a module has after Python has read it, which normalizes them."""
    classes = []
    for node in ast.parse(print_python(collections(names))).body:
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
    for name in classes:
        assert name == normalize("NFKC", name)
    return classes


def collections(names: list[str]) -> list[ClientCollection]:
    return [ClientCollection(name, is_singleton=False, fields=()) for name in names]
