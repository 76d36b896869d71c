"""The words of a search: parted by spaces, or a phrase in quotes."""

from __future__ import annotations

import pytest

from cms.query.language.query_parser import search_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("red  blue\tgreen\n", ["red", "blue", "green"]),
        ('"red blue" green', ["red blue", "green"]),
        ("red blue red", ["red", "blue"]),
        ('red "red"', ["red"]),
        ('"not ended', ['"not', "ended"]),
        ('5" disk', ['5"', "disk"]),
        ('a"b c"d', ['a"b', 'c"d']),
        ('"one""two"', ["one", "two"]),
        ('"" " " red', ["red"]),
        ('" red "', [" red "]),
        ("red\u00a0blue", ["red", "blue"]),
        ("  ", []),
        ("", []),
    ],
)
def test_a_text_is_split_into_words_and_phrases(text: str, words: list[str]) -> None:
    assert search_words(text) == words
