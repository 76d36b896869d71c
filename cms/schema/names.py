"""The names that collections and fields may have (docs/structure.md)."""

from __future__ import annotations

import re

from cms.errors import Problem, invalid_payload
from cms.schema.system import QUEUE_PREFIX, is_system

MAX_NAME_BYTES = 63
"""Bytes of a name in PostgreSQL, which cuts longer ones off."""
# ASCII only, so that characters are bytes.
NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{MAX_NAME_BYTES - 1}}}")
# Apps name dividers and notices so: `divider-x2f9`.
_ALIAS_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_NAME_BYTES - 1}}}")


def invalid_name_reason(name: object) -> str | None:
    """Return why a new collection or field cannot have a name, or None."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return (
            f"a name has 1 to {MAX_NAME_BYTES} characters: a letter from a to z or A to Z, "
            "then such letters, digits and _"
        )
    return None


def invalid_field_name_reason(name: object, *, is_alias: bool) -> str | None:
    """Return why a new field cannot have a name, or None; an alias may have hyphens in its name."""
    if is_alias and isinstance(name, str) and _ALIAS_NAME.fullmatch(name):
        return None
    return invalid_name_reason(name)


def invalid_collection_name_reason(name: object) -> str | None:
    """Return why a new collection cannot have a name, or None."""
    if isinstance(name, str):
        # In any case: `System_users` beside `system_users` would only mislead people.
        if is_system(name.lower()):
            return 'names that start with "system_" belong to the service'
        if name.lower().startswith(QUEUE_PREFIX):
            return f'names that start with "{QUEUE_PREFIX}" belong to the queue of background jobs'
        # PostgreSQL looks into its own schema first, and might find a table of its own.
        if name.startswith("pg_"):
            return 'names that start with "pg_" belong to PostgreSQL'
    return invalid_name_reason(name)


def duplicate_name_problem(name: object) -> Problem:
    """Return the problem of a name that another field of the collection has."""
    reason = f'There is a field "{name}" already'
    return invalid_payload(reason, field="field", value=name).problems[0]
