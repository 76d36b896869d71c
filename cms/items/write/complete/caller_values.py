"""Values that paths from the caller lead to, such as `$CURRENT_USER.department.id`.

Rules need them when they are applied to payloads in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cms import jsontext
from cms.access.policy import ADMIN
from cms.items.read.prepare import narrow_to_key
from cms.items.write.transaction.executor import fetch_unlimited
from cms.query.language.ast import Caller, CallerValue, Pick, Query, Slot
from cms.schema.names import FieldName
from cms.store.context import RequestContext
from cms.store.store import Store


def caller_values(
    store: Store, context: RequestContext, paths: Iterable[CallerValue]
) -> Mapping[CallerValue, tuple[object, ...]]:
    """Return the values at the end of each path.

    A path has no values for a caller without a user (or role), and many where it goes through a
    to-many field.
    """
    # Administrators write the rules, which may test values that the caller cannot read.
    actor = replace(context.actor, policy=ADMIN)
    unrestricted = context._replace(actor=actor)
    values_by_path: dict[CallerValue, tuple[object, ...]] = {}
    for path in paths:
        values_by_path[path] = tuple(_values(store, unrestricted, path))
    return values_by_path


def _values(store: Store, context: RequestContext, path: CallerValue) -> Iterator[object]:
    key = context.actor.user if path.start is Caller.USER else context.actor.role
    if key is None:
        return
    # The key is the one literal of the query, and fills its one slot.
    query = narrow_to_key(Query(picks=(_pick(path.path),)), Slot(0))
    # Nested parts of an item are JSON text, which has to be parsed to follow the path.
    for item in fetch_unlimited(store, context, path.start.collection, query, (key,)):
        yield from _path_ends(jsontext.loads_stored(jsontext.dumps(item)), path.path)


def _pick(path: tuple[FieldName, ...]) -> Pick:
    # From the first step down: each pick holds what is picked below it.
    step, *rest = path
    below = Query(picks=(_pick(tuple(rest)),)) if rest else None
    return Pick(step.key, step, below)


def _path_ends(value: Any, path: tuple[FieldName, ...]) -> Iterator[object]:
    """Yield the values at the end of a path, following every element of every array on the way."""
    if isinstance(value, list):
        for element in value:
            yield from _path_ends(element, path)
    elif not path:
        yield value
    elif value is not None:
        yield from _path_ends(value[path[0].key], path[1:])
