"""The printer of values inside of JSON fields; their steps are parameters (docs/query-language.md).

The functions are those of sql/schema.sql. An index over `system_json_key` of a path serves its
comparisons and its order (`cms index`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cms.fragment import Fragment, fill, join, param
from cms.query.language.aggregates import AGGREGATES
from cms.query.sql.columns import text_list
from cms.schema.types.field_type import FieldType

JsonSteps = tuple[str, ...]


def document(column: Fragment, field_type: FieldType) -> Fragment:
    """Print a JSON field as a document: it may be a text that holds JSON."""
    return fill(field_type.document_sql, column)


def member(document: Fragment, steps: JsonSteps) -> Fragment:
    """Print a value of a document, as json; it is null where it is missing."""
    return fill("system_json_at({0}, {1})", document, param(text_list(steps), "text[]"))


def key(member: Fragment) -> Fragment:
    """Print a value as it is compared and sorted."""
    return fill("system_json_key({0})", member)


def part(document: Fragment, paths: Sequence[JsonSteps]) -> Fragment:
    """Print an object of the values at the paths, nested as the paths are."""
    return fill("({0})::json", _object(document, (), paths))


def _object(document: Fragment, outer: JsonSteps, paths: Sequence[JsonSteps]) -> Fragment:
    # Paths with one first step make one member: `meta.a.b` and `meta.a.c` both begin with `a`.
    inner_paths: dict[str, list[JsonSteps]] = {}
    for path in paths:
        inner_paths.setdefault(path[0], []).append(path[1:])
    members = []
    for step, inner in inner_paths.items():
        steps = (*outer, step)
        # A path that ends here shows all that the others would.
        if () in inner:
            value = fill("coalesce({0}::text, 'null')", member(document, steps))
        else:
            value = _object(document, steps, inner)
        # The keys are names of the request, and so parameters.
        members.append(fill("{0} || {1}", param(f"{json.dumps(step)}:", "text"), value))
    return fill("'{' || {0} || '}'", join(" || ',' || ", members))


def aggregate(function: str, member: Fragment) -> Fragment:
    """Print an aggregate of a value of each document."""
    return fill(AGGREGATES[function].json_sql, member)
