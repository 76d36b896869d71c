"""A quick test for secrets: nearly all values hold nothing that looks like one.

One automaton reads the value as JSON. That is many times as fast as a walk through names and texts,
which a run would make over every option and every result.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import re2

from cms import jsontext
from cms.flows.secret_texts import QUERY_NAMES, SECRET_NAMES, SECRET_WORDS

_BETWEEN = "[^a-z0-9]*"
"""What may stand between the letters of a name: `pass-word` is a name of a secret, too."""

_URL_CREDENTIALS = r"://[^\s/?#\"'<>]+@"
_SCHEME = "(?:basic|bearer) "


def may_hold_secrets(value: object, names: Collection[str]) -> bool:
    """Tell whether a value must be searched for secrets; `names` are further names of some.

    False is certain: no name and no form of a text in it is one of a secret.
    """
    try:
        text = jsontext.dumps(value)
    except TypeError:  # nested too deeply, or no text that can be encoded
        return True
    # Escapes, percent signs and letters beyond ASCII could hide a name from the pattern.
    if b"\\" in text or b"%" in text or not text.isascii():
        return True
    return _pattern(frozenset(names)).search(text) is not None


@lru_cache(maxsize=8)
def _pattern(names: frozenset[str]) -> Any:
    """Return the pattern of all hints: it may match too often, but never too rarely."""
    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    hints = [_URL_CREDENTIALS, _SCHEME]
    for word in (*SECRET_WORDS, *sorted(SECRET_NAMES)):
        hints.append(_spaced(word))
    # In the query of a URL, or as names in an object that is one.
    for name in sorted(QUERY_NAMES):
        hints.append(f'{_spaced(name)}{_BETWEEN}["=]')
    # Values with letters beyond ASCII are searched in any case.
    for name in sorted(filter(str.isascii, names)):
        hints.append(f'"{re.escape(name)}"')
    return re2.compile("|".join(hints).encode(), options)


def _spaced(word: str) -> str:
    return _BETWEEN.join(word)
