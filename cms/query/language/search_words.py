"""The words of a search: parted by spaces, or a phrase in quotes."""

from __future__ import annotations

import re

from cms.schema.types.field_type import LONGEST_INDEXED_WORD

_WORD = re.compile(r'"([^"]*)"|(\S+)')

SHORTEST_INDEXED = 3
"""Characters from which on an index helps to find a word: it is one of groups of three."""

_PLAIN = re.compile(rf"\w{{1,{LONGEST_INDEXED_WORD}}}", re.ASCII)


def is_plain(word: str) -> bool:
    """Tell whether an index of words has the word as it is.

    What folding makes of other letters, only PostgreSQL knows: of `½` it is ` 1/2`.
    """
    return _PLAIN.fullmatch(word) is not None


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
