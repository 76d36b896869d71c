"""Markdown of users: nothing in it runs, and no text takes long."""

from __future__ import annotations

import time

import pytest

from cms.html_texts import MAX_MARKDOWN_LENGTH, html_of_markdown


@pytest.mark.release
@pytest.mark.parametrize("piece", ["![", "[a](", "[", "_a_", "**a ", "<", "> ", "`"])
@pytest.mark.parametrize("length", [MAX_MARKDOWN_LENGTH, 1_000_000])
def test_the_html_of_hostile_texts_takes_no_longer_than_a_blink(piece: str, length: int) -> None:
    text = (piece * length)[:length]
    start = time.process_time()
    html_of_markdown(text)
    assert time.process_time() - start < 4


@pytest.mark.parametrize("filling", ["", "x" * MAX_MARKDOWN_LENGTH])
def test_no_html_comes_of_a_text(filling: str) -> None:
    html = html_of_markdown(f"<script>alert(1)</script> [a](javascript:alert(1)) {filling}")
    assert "<script" not in html
    assert "href" not in html
