"""The names that collections and fields may have (docs/structure.md), and names of fields as
queries, rules and settings write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cms.errors import Problem, invalid_payload
from cms.schema.system import QUEUE_PREFIX, is_system

MAX_NAME_BYTES = 63
"""Bytes of a name in PostgreSQL, which cuts longer ones off."""
# ASCII only, so that characters are bytes.
NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{MAX_NAME_BYTES - 1}}}")
# Apps name dividers and notices so: `divider-x2f9`.
_ALIAS_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_NAME_BYTES - 1}}}")


def invalid_name_reason(name: object) -> str | None:
    """Return why a new collection or field cannot have a name, or None."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return (
            f"a name has 1 to {MAX_NAME_BYTES} characters: a letter from a to z or A to Z, "
            "then such letters, digits and _"
        )
    return None


def invalid_field_name_reason(name: object, *, is_alias: bool) -> str | None:
    """Return why a new field cannot have a name, or None; an alias may have hyphens in its name."""
    if is_alias and isinstance(name, str) and _ALIAS_NAME.fullmatch(name):
        return None
    return invalid_name_reason(name)


def invalid_collection_name_reason(name: object) -> str | None:
    """Return why a new collection cannot have a name, or None."""
    if isinstance(name, str):
        # In any case: `System_users` beside `system_users` would only mislead people.
        if is_system(name.lower()):
            return 'names that start with "system_" belong to the service'
        if name.lower().startswith(QUEUE_PREFIX):
            return f'names that start with "{QUEUE_PREFIX}" belong to the queue of background jobs'
        # PostgreSQL looks into its own schema first, and might find a table of its own.
        if name.startswith("pg_"):
            return 'names that start with "pg_" belong to PostgreSQL'
    return invalid_name_reason(name)


def duplicate_name_problem(name: object) -> Problem:
    """Return the problem of a name that another field of the collection has."""
    reason = f'There is a field "{name}" already'
    return invalid_payload(reason, field="field", value=name).problems[0]


# Names of fields as queries, rules and settings write them

# `year(published)`: names of functions have small letters only; the name of the field may be any.
_CALL = re.compile(r"([a-z]+)\(([^()]+)\)")


FOLLOW = "$FOLLOW("
"""The beginning of a name that follows a relation from its other side."""


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


class FollowName(NamedTuple):
    """The items of a collection whose field leads to this one: `$FOLLOW(articles,image)`.

    Of a many-to-any field `collection_field` names the collections that it leads to.
    """

    collection: str
    field: str
    collection_field: str | None = None

    def __str__(self) -> str:
        return f"{FOLLOW}{','.join(filter(None, self))})"


def follow_name(text: str) -> FollowName | None:
    """Return a name that begins with `FOLLOW`, None for one that is written in another way."""
    if not text.startswith(FOLLOW) or not text.endswith(")"):
        return None
    parts = [part.strip() for part in text[len(FOLLOW) : -1].split(",")]
    if len(parts) not in (2, 3) or not all(parts):
        return None
    return FollowName(*parts)


class DottedName(NamedTuple):
    """A field, and the name behind its dot: `meta.price`, a path into a JSON field.

    Only the fields of a collection tell which dots separate steps.
    """

    head: FieldName
    steps: tuple[str, ...]

    @property
    def rest(self) -> FieldName:
        """The part behind the first dot."""
        return FieldName.parse(".".join(self.steps), self.head.function)


def dotted_name(name: FieldName, is_field: Callable[[str], bool]) -> DottedName | None:
    """Return a name with a dot taken apart; None for the name of a single field.

    A column may have dots in its own name: the longest beginning that names a field is the field.
    Where none does, the first step is.
    """
    text = name.written
    if "." not in text or is_field(text):
        return None
    parts = text.split(".")
    # A name of a field has at most so many dots, and a request may send any number of them.
    count = min(len(parts) - 1, MAX_NAME_BYTES)
    while count > 1 and not is_field(".".join(parts[:count])):
        count -= 1
    field = ".".join(parts[:count])
    # A column may have a colon in its own name, too: then nothing behind it names a collection.
    if is_field(field):
        head = FieldName(field, name.function)
    else:
        head = FieldName.parse(field, name.function)
    return DottedName(head, tuple(parts[count:]))


FieldPath = tuple[FieldName, ...]
"""Steps from one collection to the next, `author.country.name`."""


def parse_path(text: str) -> FieldPath:
    """Return the steps of a dotted path, none of which is a function."""
    return tuple(map(FieldName.parse, text.split(".")))


def parse_value_path(text: str) -> FieldPath:
    """Return the steps of a dotted path that may lead to functions, `author.year(born)`."""
    return tuple(map(parse_name, text.split(".")))
