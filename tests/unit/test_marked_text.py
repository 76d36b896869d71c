"""Words marked in texts, as HTML."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.html_texts import MAX_MARKS, marked_words

UMLAUTS: dict[str, str] = {"ä": "a", "ß": "ss", "\u0301": "", "æ": "ae"}


@pytest.mark.parametrize(
    ("text", "words", "html"),
    [
        ("A Cat & cats", ["cat"], "A <mark>Cat</mark> &amp; <mark>cat</mark>s"),
        ("<b>cat</b>", ["cat"], "&lt;b&gt;<mark>cat</mark>&lt;/b&gt;"),
        ("<mark>x</mark>", ["x"], "&lt;mark&gt;<mark>x</mark>&lt;/mark&gt;"),
        ('"x" \'', ["'"], "&quot;x&quot; <mark>&#x27;</mark>"),
        ("a < b", ["<"], "a <mark>&lt;</mark> b"),
        ("abab", ["aba", "bab"], "<mark>abab</mark>"),
        ("aaaa", ["aa"], "<mark>aa</mark><mark>aa</mark>"),
        ("Straße", ["ss"], "Stra<mark>ß</mark>e"),
        ("Straße", ["s"], "<mark>S</mark>tra<mark>ß</mark>e"),
        ("Straße läuft", ["se", "lau"], "Stra<mark>ße</mark> <mark>läu</mark>ft"),
        ("cafe\u0301 au", ["cafe"], "<mark>cafe\u0301</mark> au"),
        ("cafe\u0301", ["cafe"], "<mark>cafe\u0301</mark>"),
        ("ÆÄ", ["x"], None),
        ("", ["x"], None),
        ("text", [], None),
        ("text", [""], None),
    ],
)
def test_words_are_marked_and_everything_else_is_escaped(
    text: str, words: list[str], html: str | None
) -> None:
    folds = {letter: fold for letter, fold in UMLAUTS.items() if letter in text}
    assert marked_words(text, words, folds) == html


@given(st.text("aäß\u0301<&b"), st.lists(st.text("asb<&", min_size=1), max_size=4))
def test_without_its_marks_the_html_is_the_text_and_each_mark_holds_a_word(
    text: str, words: list[str]
) -> None:
    html = marked_words(text, words, UMLAUTS)
    if html is None:
        return
    parts = re.split("<mark>|</mark>", html)
    assert unescape("".join(parts)) == text
    assert "<" not in "".join(parts)
    for part in parts[1::2]:
        folded = unescape(part).translate({ord(letter): fold for letter, fold in UMLAUTS.items()})
        assert any(word in folded for word in words)


def test_a_word_that_is_everywhere_is_marked_a_limited_number_of_times() -> None:
    html = marked_words("a" * 1_000_000, ["a"], {})
    assert html is not None
    assert html.count("<mark>") == MAX_MARKS
    assert len(html) < 1_100_000
