"""What paths from the caller lead to, for rules that are tried on payloads: `$CURRENT_USER.department.id`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cms import jsontext
from cms.access.policy import ADMIN
from cms.database.connections import Fetch
from cms.items.read.prepare import narrow_to_key, statement_for
from cms.query.language.ast import CallerValue, FieldName, Pick, Query, Slot
from cms.query.plan.bindings import Bindings, bind_values
from cms.store.context import RequestContext
from cms.store.store import Store


def caller_values(
    store: Store, context: RequestContext, fetch: Fetch, paths: Iterable[CallerValue]
) -> Mapping[CallerValue, tuple[object, ...]]:
    """Return the values at the end of each path: none for nobody's user, many behind a to-many step.

    A rule is the administrator's, so what it looks at is not narrowed by what its caller may read.
    """
    trusting = replace(context, actor=replace(context.actor, policy=ADMIN))
    return {path: tuple(_values(store, trusting, fetch, path)) for path in paths}


def _values(
    store: Store, context: RequestContext, fetch: Fetch, path: CallerValue
) -> Iterator[object]:
    key = context.actor.user if path.name == "CURRENT_USER" else context.actor.role
    if key is None:
        return
    found = statement_for(
        store, context, path.collection, narrow_to_key(Query(picks=(_pick(path.path),)), Slot(0))
    )
    for item in found.items(fetch(found.text, bind_values(found.values, Bindings((key,))))):
        yield from _path_ends(jsontext.loads_stored(jsontext.dumps(item)), path.path)


def _pick(path: tuple[FieldName, ...]) -> Pick:
    step, *rest = path
    return Pick(step.key, step, Query(picks=(_pick(tuple(rest)),)) if rest else None)


def _path_ends(found: Any, path: tuple[FieldName, ...]) -> Iterator[object]:
    """Yield what stands at the end of a path, of every entry of every array on the way."""
    if isinstance(found, list):
        for entry in found:
            yield from _path_ends(entry, path)
    elif not path:
        yield found
    elif found is not None:
        yield from _path_ends(found[path[0].key], path[1:])
