"""The state of the service, and the settings that anybody may see."""

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
    """Return `status` (ok or error) and the state of the database, with milliseconds."""
    began = time.perf_counter()
    try:
        # The smallest statement that needs the tables of the service, and so a migrated database.
        store.database.fetch(statement("find_version"))
        milliseconds = round((time.perf_counter() - began) * 1000, 1)
        database: dict[str, object] = {"status": "ok", "ms": milliseconds}
    except Refused as refused:
        database = {"status": "error", "reason": refused.problems[0].message}
    except Stale as stale:
        # A database that was never migrated lacks the table, like one whose structure has changed.
        database = {"status": "error", "reason": refusal_of_stale(stale).problems[0].message}
    return {"status": database["status"], "database": database}


def public_health(state: Mapping[str, Any]) -> dict[str, object]:
    """Return the part of `health` that anybody may see."""
    # The reason is no secret: the error of any other request holds it as well.
    public = {"status": state["status"]}
    reason = state["database"].get("reason")
    if reason:
        public["reason"] = reason
    return public


def refusal_of_stale(stale: Stale) -> Refused:
    """Return SERVICE_UNAVAILABLE for an error of the database that remained after all attempts."""
    if isinstance(stale, Deadlock):
        return unavailable("database", "It is busy with other changes")
    # The messages of a server may be in any language, but they all name the missing table.
    if "system_" in str(stale):
        return unavailable("database", NOT_MIGRATED)
    return unavailable("database", "Its structure does not come to rest")


def info(store: Store, identity: Identity) -> dict[str, object]:
    """Return the public part of the settings; for administrators the versions as well."""
    return store.run_unversioned_read(identity, _info)


def _info(context: RequestContext) -> dict[str, object]:
    rows = context.fetch(statement("find_project"), ())
    name, descriptor, color, language, server = rows[0]
    project = {
        "project_name": name,
        "project_descriptor": descriptor,
        "project_color": color,
        "default_language": language,
    }
    if not context.actor.policy.is_admin:
        return {"project": project}
    answer = {"project": project, "version": version("cms"), "database": server}
    # Tables that are no collections, because their names are the service's own.
    reserved_tables = context.snapshot.catalogue.reserved_tables
    if reserved_tables:
        answer["reserved_tables"] = list(reserved_tables)
    return answer
