"""What the service knows of its own state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from cms.database.error_mapping import Deadlock, Stale
from cms.database.statements import statement
from cms.errors import Refused, unavailable
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store

NOT_MIGRATED = "It is not migrated; run `cms migrate`"


def health(store: Store) -> dict[str, object]:
    """Return `status` (ok or error) and the parts that were looked at, with milliseconds."""
    began = time.perf_counter()
    try:
        store.database.fetch(statement("find_version"))
        database: dict[str, object] = {
            "status": "ok",
            "ms": round((time.perf_counter() - began) * 1000, 1),
        }
    except Refused as refused:
        database = {"status": "error", "reason": refused.problems[0].message}
    except Stale as stale:
        database = {"status": "error", "reason": told(stale).problems[0].message}
    return {"status": database["status"], "database": database}


def public(found: Mapping[str, Any]) -> dict[str, object]:
    """Return the part of `health` that anybody may see: any other request would be told the reason too."""
    reason = found["database"].get("reason")
    return {"status": found["status"]} | ({"reason": reason} if reason else {})


def told(stale: Stale) -> Refused:
    """Return SERVICE_UNAVAILABLE for a fault of the database that trying again did not mend."""
    if isinstance(stale, Deadlock):
        return unavailable("database", "It is busy with other changes")
    if "system_" in str(
        stale
    ):  # whatever language the server speaks, it names the table that is missing
        return unavailable("database", NOT_MIGRATED)
    return unavailable("database", "Its structure does not come to rest")


def info(store: Store, identity: Identity) -> dict[str, object]:
    """Return the public part of the settings; for administrators the versions as well."""

    def work(context: RequestContext) -> dict[str, object]:
        name, descriptor, color, language, server = store.database.fetch(statement("find_project"))[
            0
        ]
        project = {
            "project_name": name,
            "project_descriptor": descriptor,
            "project_color": color,
            "default_language": language,
        }
        if not context.actor.policy.is_admin:
            return {"project": project}
        reserved_tables = context.snapshot.catalogue.reserved_tables
        told = {"reserved_tables": list(reserved_tables)} if reserved_tables else {}
        return {"project": project, "version": version("cms"), "database": server, **told}

    return store.run_unversioned_read(identity, work)
