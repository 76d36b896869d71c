"""What paths from the caller lead to, for rules that are tried on payloads: `$CURRENT_USER.department.id`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cms import jsontext
from cms.access.policy import ADMIN
from cms.query.ast import Current, Name, Pick, Query, Slot
from cms.query.bind import Context, bound
from cms.store.reads import by_key, statement_for
from cms.store.store import Fetch, Scene, Store


def values_of(
    store: Store, scene: Scene, fetch: Fetch, paths: Iterable[Current]
) -> Mapping[Current, tuple[object, ...]]:
    """Return the values at the end of each path: none for nobody's user, many behind a to-many step.

    A rule is the administrator's, so what it looks at is not narrowed by what its caller may read.
    """
    trusting = replace(scene, actor=replace(scene.actor, policy=ADMIN))
    return {path: tuple(_values(store, trusting, fetch, path)) for path in paths}


def _values(store: Store, scene: Scene, fetch: Fetch, path: Current) -> Iterator[object]:
    key = scene.actor.user if path.name == "CURRENT_USER" else scene.actor.role
    if key is None:
        return
    found = statement_for(store, scene, path.collection, by_key(Query(picks=(_pick(path.path),)), Slot(0)))
    for item in found.items(fetch(found.text, bound(found.values, Context((key,))))):
        yield from _ends(jsontext.stored(jsontext.dumps(item)), path.path)


def _pick(path: tuple[Name, ...]) -> Pick:
    step, *rest = path
    return Pick(step.key, step, Query(picks=(_pick(tuple(rest)),)) if rest else None)


def _ends(found: Any, path: tuple[Name, ...]) -> Iterator[object]:
    """Yield what stands at the end of a path, of every entry of every array on the way."""
    if isinstance(found, list):
        for entry in found:
            yield from _ends(entry, path)
    elif not path:
        yield found
    elif found is not None:
        yield from _ends(found[path[0].key], path[1:])
