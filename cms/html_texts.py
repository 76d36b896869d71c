"""Texts as HTML that is safe to show: Markdown, and texts with words marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

from markdown_it import MarkdownIt

MAX_MARKS = 1_000
"""How often one word is marked in a text at most: marks make a text several times as long."""

_SMALL_LETTERS = dict(zip(ascii_uppercase, ascii_lowercase, strict=True))


class _Span(NamedTuple):
    """A part of a text, from the first character up to the one behind the last."""

    start: int
    end: int


def marked_words(text: str, words: Sequence[str], folds: Mapping[str, str]) -> str | None:
    """Return a text as HTML with the words marked; None where none of them is found.

    The words are folded, and `folds` maps each character of the text that is not ASCII to its fold:
    none, one or several characters.
    """
    # Only ASCII letters here: which others have small letters is for the database to say.
    letters: dict[str, str | int | None] = {**_SMALL_LETTERS, **folds}
    folded = text.translate(str.maketrans(letters))
    spans = list(_merged(sorted(_matches(folded, words))))
    if not spans:
        return None
    # Nearly every text keeps its length, and then positions are the same in both.
    if any(len(fold) != 1 for fold in folds.values()):
        spans = list(_merged(_unfolded(text, spans, folds)))
    return _marked(text, spans)


def marked_whole(text: str) -> str:
    """Return a text as HTML that is marked as a whole."""
    return f"<mark>{escape(text)}</mark>"


def _matches(folded: str, words: Iterable[str]) -> Iterator[_Span]:
    for word in words:
        yield from islice(_matches_of(folded, word), MAX_MARKS)


def _matches_of(folded: str, word: str) -> Iterator[_Span]:
    # A letter that folds to nothing is in every text.
    start = folded.find(word) if word else -1
    while start >= 0:
        yield _Span(start, start + len(word))
        start = folded.find(word, start + len(word))


def _merged(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Join spans that overlap; they come in the order of their starts."""
    last: _Span | None = None
    for span in spans:
        if last is not None and span.start < last.end:
            last = _Span(last.start, max(last.end, span.end))
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _unfolded(text: str, spans: Iterable[_Span], folds: Mapping[str, str]) -> Iterator[_Span]:
    """Yield the spans of a folded text in the text itself.

    A character of which a part is marked is marked, and so are those behind it that have folded to
    nothing: they belong to it, as the accent to its letter.
    """
    origins: list[int] = []
    for number, character in enumerate(text):
        origins += [number] * len(folds.get(character, character))
    for start, end in spans:
        following = origins[end] if end < len(origins) else len(text)
        yield _Span(origins[start], max(following, origins[end - 1] + 1))


def _marked(text: str, spans: Iterable[_Span]) -> str:
    parts = []
    position = 0
    for start, end in spans:
        parts += [escape(text[position:start]), marked_whole(text[start:end])]
        position = end
    parts.append(escape(text[position:]))
    return "".join(parts)


# Markdown, in bounded time


MAX_MARKDOWN_LENGTH = 20_000
"""Characters; the HTML of a hostile text takes time that grows with the square of its length."""

# Writes HTML of its own out as text, and makes no links to scripts.
_COMMONMARK = MarkdownIt("commonmark", {"html": False})


def html_of_markdown(text: str) -> str:
    """Return the HTML of a text; one that is too long is shown as it is written."""
    if len(text) > MAX_MARKDOWN_LENGTH:
        return f"<pre>{escape(text)}</pre>"
    html: str = _COMMONMARK.render(text)
    return html
