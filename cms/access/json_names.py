"""Names with dots: paths into JSON fields, and relations before them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from cms.access.views import View
from cms.errors import Refused, invalid_query
from cms.query.language.ast import Query, Star
from cms.query.language.limits import MAX_JSON_PATHS, MAX_JSON_STEPS
from cms.query.plan.document_paths import JsonPath, JsonPaths
from cms.query.plan.guarded import GuardedValue
from cms.schema.field_names import FieldName
from cms.schema.model import Field
from cms.schema.names import MAX_NAME_BYTES
from cms.schema.types.field_type import Trait


class DottedName(NamedTuple):
    """A field, and what is named behind its dot."""

    head: FieldName
    steps: tuple[str, ...]

    @property
    def rest(self) -> FieldName:
        """What stands behind the first dot."""
        return FieldName.parse(".".join(self.steps), self.head.function)


def dotted_name(name: FieldName, view: View) -> DottedName | None:
    """Return a name with a dot taken apart; None for the name of a single field.

    A column may have a dot in its own name, and then the longest name of a field is one.
    """
    text = name.written
    if "." not in text or view.includes(text):
        return None
    parts = text.split(".")
    # A name of a field has at most so many dots, and a request may send any number of them.
    count = min(len(parts) - 1, MAX_NAME_BYTES)
    while count > 1 and not view.includes(".".join(parts[:count])):
        count -= 1
    head = FieldName.parse(".".join(parts[:count]), name.function)
    return DottedName(head, tuple(parts[count:]))


def holds_json(field: Field) -> bool:
    """Tell whether a path may lead into a field."""
    return Trait.JSON in field.type.traits


def at_path(value: GuardedValue, steps: tuple[str, ...]) -> GuardedValue:
    """Return the value at a path of a JSON field; raises `Refused` INVALID_QUERY."""
    _check_steps(value.field, steps)
    if value.function is not None:
        path = ".".join((value.field.name, *steps))
        raise _wrong(value.field, f'"{path}" is a path, and functions take a field')
    return replace(value, at=JsonPath(steps))


def shown_paths(value: GuardedValue, query: Query) -> GuardedValue:
    """Return the part of a JSON field that a nested query picks; raises `Refused` INVALID_QUERY."""
    paths = _paths_of(query, value.field)
    if paths == [("*",)]:
        return value
    if len(paths) > MAX_JSON_PATHS:
        raise _wrong(value.field, f"it shows more than {MAX_JSON_PATHS} paths of one field")
    for path in paths:
        _check_steps(value.field, path)
    return replace(value, at=JsonPaths(tuple(paths)))


def _paths_of(query: Query, field: Field) -> list[tuple[str, ...]]:
    if replace(query, picks=(), window=None) != Query(picks=()):
        raise _wrong(field, f'"{field.name}" holds JSON, of which "deep" says nothing')
    paths: list[tuple[str, ...]] = []
    for pick in query.picks:
        # `meta.*` shows all of it; `meta.*.price` is no path, as nobody knows what it would be.
        step = ("*",) if isinstance(pick, Star) else (str(pick.name),)
        inner = [()] if pick.nested is None else _paths_of(pick.nested, field)
        paths += [(*step, *path) for path in inner]
    return paths


def _check_steps(field: Field, steps: tuple[str, ...]) -> None:
    if len(steps) > MAX_JSON_STEPS:
        raise _wrong(field, f"a path into JSON takes at most {MAX_JSON_STEPS} steps")
    if not all(steps) or "*" in steps:
        raise _wrong(field, "each step of a path into JSON is the name of a member or an index")


def _wrong(field: Field, reason: str) -> Refused:
    return invalid_query(reason, collection=field.collection, field=field.name)
