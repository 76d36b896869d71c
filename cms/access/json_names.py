"""Paths into JSON fields, as queries name and pick them."""

from __future__ import annotations

from dataclasses import replace

from cms.errors import Refused, invalid_query
from cms.query.language.ast import Query, Star
from cms.query.language.limits import MAX_JSON_PATHS, MAX_JSON_STEPS
from cms.query.plan.guarded import GuardedValue
from cms.query.plan.read_plan import JsonPath, JsonPaths
from cms.schema.model import Field
from cms.schema.types.field_type import Trait


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


def picked_paths(value: GuardedValue, query: Query) -> GuardedValue:
    """Return the part of a JSON field that a nested query picks; raises `Refused` INVALID_QUERY."""
    _require_picks_only(query, value.field)
    # `meta.*` shows all of it.
    if query.picks == (Star(),):
        return value
    paths = _paths_of(query, value.field)
    if len(paths) > MAX_JSON_PATHS:
        raise _wrong(value.field, f"it shows more than {MAX_JSON_PATHS} paths of one field")
    for path in paths:
        _check_steps(value.field, path)
    return replace(value, at=JsonPaths(tuple(paths)))


def _require_picks_only(query: Query, field: Field) -> None:
    if replace(query, picks=(), window=None) != Query(picks=()):
        raise _wrong(field, f'"{field.name}" holds JSON, of which "deep" says nothing')


def _paths_of(query: Query, field: Field) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for pick in query.picks:
        # `meta.*.price` is no path: nobody knows what it would be.
        if isinstance(pick, Star):
            raise _no_step(field)
        step = str(pick.name)
        if pick.nested is None:
            paths.append((step,))
            continue
        _require_picks_only(pick.nested, field)
        for inner in _paths_of(pick.nested, field):
            paths.append((step, *inner))
    return paths


def _check_steps(field: Field, steps: tuple[str, ...]) -> None:
    if len(steps) > MAX_JSON_STEPS:
        raise _wrong(field, f"a path into JSON takes at most {MAX_JSON_STEPS} steps")
    if not all(steps) or "*" in steps:
        raise _no_step(field)


def _no_step(field: Field) -> Refused:
    return _wrong(field, "each step of a path into JSON is the name of a member or an index")


def _wrong(field: Field, reason: str) -> Refused:
    return invalid_query(reason, collection=field.collection, field=field.name)
