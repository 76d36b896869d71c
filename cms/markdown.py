"""Markdown as HTML that is safe to show, in bounded time."""

from __future__ import annotations

from html import escape

from markdown_it import MarkdownIt

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
