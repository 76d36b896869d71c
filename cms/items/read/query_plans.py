"""PostgreSQL's plans of statements: EXPLAIN returns them without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from cms import jsontext
from cms.database.connections import Fetch
from cms.query.plan.estimate import Node


def explained(fetch: Fetch, text: str, values: Sequence[object]) -> object:
    """Return the plan of a statement, as JSON that goes into an answer as it is."""
    return fetch(f"EXPLAIN (FORMAT JSON) {text}", values)[0][0]


def plan_of(fetch: Fetch, text: str, values: Sequence[object]) -> Sequence[Mapping[str, Node]]:
    """Return the plan of a statement."""
    # The driver leaves JSON as text, for answers; here its values are needed.
    plan = jsontext.loads(jsontext.dumps(explained(fetch, text, values)))
    return cast(Sequence[Mapping[str, Node]], plan)
