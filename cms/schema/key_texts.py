"""The texts of keys of several columns, as paths and the history have them: `17,3`.

The values stand in the order of the constraint, with commas between them. In a value a comma is
`%2C` and a percent sign `%25`, so that two keys never share a text (section 18 of the decisions).
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote


class PathText(str):
    """A decoded text of a path, with the form in which the client has encoded it."""

    encoded: str

    @classmethod
    def of(cls, text: str, encoded: str) -> PathText:
        path_text = cls(text)
        path_text.encoded = encoded
        return path_text


def key_text(values: Iterable[str | None]) -> str | None:
    """Return the text of the key of these values, None where one of them is missing."""
    parts: list[str] = []
    for value in values:
        if value is None:
            return None
        if "%" in value or "," in value:
            value = value.replace("%", "%25").replace(",", "%2C")
        parts.append(value)
    return ",".join(parts)


def key_values(text: str) -> list[str]:
    """Return the values of the key of a text; in each of them any percent-encoding is understood.

    A text without a comma is one that was encoded as a whole once more: `17%2C3`.
    """
    # A value may hold a comma, which the decoded path no longer tells from those between values.
    if isinstance(text, PathText):
        text = text.encoded
    if "," not in text:
        text = unquote(text)
    return [unquote(part) for part in text.split(",")]
