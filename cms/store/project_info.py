"""The settings that anybody may see, and for administrators the versions."""

from __future__ import annotations

from cms.database.statements import statement
from cms.distribution import installed_version
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store

DIRECTUS_VERSION = "10.13"
"""The version of Directus whose clients work here (docs/directus.md)."""


def info(store: Store, identity: Identity) -> dict[str, object]:
    """Return the public part of the settings; for administrators the versions as well."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            answer = _info(context)
    return answer


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
    answer = {
        "project": project,
        "version": installed_version(),
        "compatible_with": f"directus {DIRECTUS_VERSION}",
        "database": server,
    }
    # Tables that are no collections, because their names are the service's own.
    reserved_tables = context.snapshot.catalogue.reserved_tables
    if reserved_tables:
        answer["reserved_tables"] = list(reserved_tables)
    return answer
