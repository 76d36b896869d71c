"""The words of a search: parted by spaces, or a phrase in quotes."""

from __future__ import annotations

import re

_WORD = re.compile(r'"([^"]*)"|(\S+)')

SHORTEST_INDEXED = 3
"""Characters from which on an index helps to find a word: it is one of groups of three."""


def search_words(text: str) -> list[str]:
    """Return the words and phrases of a search, each once.

    Words are parted by white space. A phrase begins with a quote at the start of a word, and ends
    with the next one; any other quote is a character like others.
    """
    words = []
    for match in _WORD.finditer(text):
        phrase, word = match.groups()
        if word or phrase.strip():
            words.append(word or phrase)
    return list(dict.fromkeys(words))
