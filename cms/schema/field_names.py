"""Names of fields as queries, rules and settings write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

# `year(published)`: names of functions have small letters only; the name of the field may be any.
_CALL = re.compile(r"([a-z]+)\(([^()]+)\)")


@dataclass(frozen=True, slots=True)
class FieldName:
    """A field, or a function of one: `title`, `year(published)`.

    A many-to-any field may name the collection that it leads to: `item:headings`.
    """

    field: str
    function: str | None = None
    target: str | None = None

    @classmethod
    def parse(cls, text: str, function: str | None = None) -> FieldName:
        """Return the name that a text without a function is, `item` or `item:headings`."""
        field, colon, target = text.partition(":")
        return cls(field, function, target if colon else None)

    @property
    def written(self) -> str:
        """The name as it is written, without the function."""
        if self.target is None:
            return self.field
        return f"{self.field}:{self.target}"

    @property
    def key(self) -> str:
        """The key in the answer."""
        # `year(published)` is shown as `published_year`.
        if self.function:
            return f"{self.written}_{self.function}"
        return self.field

    def __str__(self) -> str:
        if self.function:
            return f"{self.function}({self.written})"
        return self.written


def parse_name(text: str) -> FieldName:
    """Return a field, a function of one, `year(published)`, or a field with its target."""
    matched = _CALL.fullmatch(text)
    if matched:
        return FieldName.parse(matched[2], matched[1])
    return FieldName.parse(text)


FieldPath = tuple[FieldName, ...]
"""Steps from one collection to the next, `author.country.name`."""


def parse_path(text: str) -> FieldPath:
    """Return the steps of a dotted path in which parentheses mean nothing."""
    return tuple(map(FieldName.parse, text.split(".")))


def parse_value_path(text: str) -> FieldPath:
    """Return the steps of a dotted path that may lead to functions, `author.year(born)`."""
    return tuple(map(parse_name, text.split(".")))
