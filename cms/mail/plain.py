"""The plain text of an HTML mail, for readers without HTML."""

from __future__ import annotations

import re
from html import unescape

_HIDDEN_TAGS = frozenset({"head", "script", "style", "title"})
_BLOCKS = frozenset(
    {"br", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "p", "table", "tr"}
)

# A comment, a tag, or text. Each is read once, whatever does not end: html.parser takes quadratic
# time for that, and ends with an exception for some of it.
_PIECE = re.compile(r"<!--.*?(?:-->|\Z)|<[a-zA-Z/!?][^<>]*>|[^<]+|<", re.DOTALL)
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)")
_HREF = re.compile(r"""\shref\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
# The longest that stand for a character; more digits than that, int() may refuse.
_REFERENCE = re.compile(r"&(?:#\w{1,8}|\w{1,32});?", re.ASCII)


def plain(html: str) -> str:
    """Return the text that a reader would see, with the address of each link after its words."""
    reader = _TextExtractor()
    for piece in _PIECE.findall(html):
        reader.read(piece)
    lines = "".join(reader.pieces).splitlines()
    text = "\n".join(map(_single_spaced, lines))
    # Every block begins and ends a line, so that nested ones leave many empty lines.
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _single_spaced(line: str) -> str:
    return " ".join(line.split())


def _unescaped(text: str) -> str:
    return _REFERENCE.sub(lambda match: unescape(match[0]), text)


class _TextExtractor:
    """Collects the visible text of a document in `pieces`."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._hidden_depth = 0
        # A stack of the addresses of open links: their ends have no attributes.
        self._links: list[str] = []

    def read(self, piece: str) -> None:
        """Read the next piece of the document."""
        tag = _TAG.match(piece)
        if tag is None:
            # Comments, declarations and instructions begin with these as well, and are not shown.
            if not piece.startswith(("<!", "<?", "</")):
                self._text(piece)
        elif tag[1]:
            self._end(tag[2].lower())
        else:
            self._start(tag[2].lower(), piece)

    def _start(self, name: str, tag: str) -> None:
        if name in _HIDDEN_TAGS:
            self._hidden_depth += 1
        elif name == "a":
            href = _HREF.search(tag)
            self._links.append(_unescaped(href[1] or href[2] or href[3] or "") if href else "")
        elif name in _BLOCKS:
            self.pieces.append("\n")

    def _end(self, name: str) -> None:
        if name in _HIDDEN_TAGS:
            # An end tag without its start must not bring the depth below zero.
            self._hidden_depth = max(0, self._hidden_depth - 1)
        elif name == "a" and self._links:
            address = self._links.pop()
            if address:
                self.pieces.append(f" ({address})")
        elif name in _BLOCKS:
            self.pieces.append("\n")

    def _text(self, text: str) -> None:
        if not self._hidden_depth:
            # Line breaks of the source are spaces to a reader; only blocks break lines.
            self.pieces.append(re.sub(r"\s+", " ", _unescaped(text)))
