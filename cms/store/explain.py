"""What a read becomes: the statement, its parameters, PostgreSQL's plan (for finding a missing index)."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from cms.errors import invalid_query
from cms.query.bind import Context, bound
from cms.store.reads import Ask, prepared
from cms.store.store import Identity, Scene, Store, require_admin

_PREFIX = "/items/"


def explain(store: Store, identity: Identity, path: str) -> dict[str, object]:
    """Return `statement`, `parameters` and `plan` of the read at a path such as /items/articles?limit=5.

    Nothing is executed. For administrators; raises `Refused` as the read itself would.
    """
    ask = _ask(path)

    def work(scene: Scene) -> dict[str, object]:
        require_admin(scene.actor)
        statement, literals = prepared(store, scene, ask)
        values = bound(statement.values, Context(literals, scene.actor.user, scene.actor.role))
        rows = store.database.fetch(f"EXPLAIN (FORMAT JSON) {statement.text}", values)
        return {"statement": statement.text, "parameters": values, "plan": rows[0][0]}

    return store.reading(identity, work)


def _ask(path: str) -> Ask:
    parts = urlsplit(path)
    collection = unquote(parts.path).removeprefix(_PREFIX)
    if not parts.path.startswith(_PREFIX) or not collection or "/" in collection:
        raise invalid_query('path is the path of a list of items, such as "/items/articles?limit=5"', parameter="path")
    return Ask(collection, parts.query)
