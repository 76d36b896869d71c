"""The plain text of an HTML mail, for readers without HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_HIDDEN_TAGS = frozenset({"head", "script", "style", "title"})
_BLOCKS = frozenset(
    {"br", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "p", "table", "tr"}
)


def plain(html: str) -> str:
    """Return the text that a reader would see, with the address of each link after its words."""
    reader = _TextExtractor()
    reader.feed(html)
    reader.close()
    lines = "".join(reader.pieces).splitlines()
    text = "\n".join(map(_single_spaced, lines))
    # Every block begins and ends a line, so that nested ones leave many empty lines.
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _single_spaced(line: str) -> str:
    return " ".join(line.split())


class _TextExtractor(HTMLParser):
    """Collects the visible text of a document in `pieces`."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._hidden_depth = 0
        # A stack of the addresses of open links: their ends have no attributes.
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN_TAGS:
            self._hidden_depth += 1
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN_TAGS:
            # An end tag without its start must not bring the depth below zero.
            self._hidden_depth = max(0, self._hidden_depth - 1)
        elif tag == "a" and self._links:
            address = self._links.pop()
            if address:
                self.pieces.append(f" ({address})")
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden_depth:
            # Line breaks of the source are spaces to a reader; only blocks break lines.
            self.pieces.append(re.sub(r"\s+", " ", data))
