"""Names that collections and fields may have (decisions, section 6)."""

from __future__ import annotations

import re

from cms.schema.build import QUEUE_PREFIX, is_system

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def fault_of_name(name: object) -> str | None:
    """Return what is wrong with a name for a new collection or field, or None."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "a name has 1 to 63 characters: a letter, then letters, digits and _"
    return None


def fault_of_collection_name(name: object) -> str | None:
    """Return what is wrong with a name for a new collection, or None."""
    if isinstance(name, str) and is_system(name.lower()):
        return 'names that start with "system_" belong to the service'
    if isinstance(name, str) and name.lower().startswith(QUEUE_PREFIX):
        return f'names that start with "{QUEUE_PREFIX}" belong to the queue of background jobs'
    if isinstance(name, str) and name.startswith(
        "pg_"
    ):  # PostgreSQL would find its own table of that name first
        return 'names that start with "pg_" belong to PostgreSQL'
    return fault_of_name(name)
