"""What the service knows of its own state."""

from __future__ import annotations

import time
from importlib.metadata import version

from cms.errors import Refused
from cms.store.statements import statement
from cms.store.store import Identity, Scene, Store


def health(store: Store) -> dict[str, object]:
    """Return `status` (ok or error) and the parts that were looked at, with milliseconds."""
    began = time.perf_counter()
    try:
        store.database.fetch(statement("find_version"))
        database: dict[str, object] = {"status": "ok", "ms": round((time.perf_counter() - began) * 1000, 1)}
    except Refused as refused:
        database = {"status": "error", "reason": refused.problems[0].message}
    return {"status": database["status"], "database": database}


def info(store: Store, identity: Identity) -> dict[str, object]:
    """Return the public part of the settings; for administrators the versions as well."""

    def work(scene: Scene) -> dict[str, object]:
        name, descriptor, color, language, server = store.database.fetch(statement("find_project"))[0]
        project = {
            "project_name": name,
            "project_descriptor": descriptor,
            "project_color": color,
            "default_language": language,
        }
        versions = {"version": version("cms"), "database": server} if scene.actor.policy.admin else {}
        return {"project": project, **versions}

    return store.at_rest(identity, work)
