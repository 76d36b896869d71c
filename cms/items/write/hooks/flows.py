"""Flows and operations: their options, and the graph that they make together (docs/flows.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from cms.database.connections import Fetch, single_values
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.flows.definition.flow import (
    ENDS,
    NO_OPERATION,
    FlowProblem,
    flow_definition,
    flow_problems,
)
from cms.flows.definition.options import Options
from cms.schema.system import FLOWS, OPERATIONS, choices_of
from cms.store.context import RequestContext
from cms.store.table_hooks import (
    HookedRow,
    TableHooks,
    check_color,
    failed_validation,
    keys_of,
    one_of,
)


def _check_options(value: object, context: RequestContext) -> None:
    if not isinstance(value, dict):
        raise ValueError("they are an object")


def _check_key(value: object, context: RequestContext) -> None:
    # Names with $ are those of the service's own values, such as $trigger and $last.
    if not isinstance(value, str) or not value.strip() or value.startswith("$"):
        raise ValueError("it is a text that does not begin with $")


def _after_flows(
    types: Mapping[str, Options], fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]
) -> None:
    _require_sound(types, fetch, keys_of(rows))


def _before_operations(
    fetch: Fetch,
    context: RequestContext,
    rows: Sequence[HookedRow],
    deleted_keys: Sequence[str],
) -> None:
    # As the foreign keys of `resolve` and `reject` do for the other ways to an operation.
    if deleted_keys:
        fetch(statement("clear_beginnings"), (list(deleted_keys),))


def _after_operations(
    types: Mapping[str, Options], fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]
) -> None:
    keys = keys_of(rows)
    if keys:
        flows = single_values(fetch(statement("find_flows_of_operations"), (keys,)))
        _require_sound(types, fetch, flows)


def _require_sound(types: Mapping[str, Options], fetch: Fetch, keys: Sequence[str]) -> None:
    """Raise `Refused` with the problems of flows as they are stored now.

    What is still missing in an inactive flow is none.

    A change of one row alone can make a flow wrong together with its other rows. Two transactions
    that change one flow take turns: each increases the counter of flows before this check, and this
    statement sees the committed changes of the other.
    """
    if not keys:
        return
    rows = fetch(statement("find_flow_definitions"), (list(keys),))
    problems: list[Problem] = []
    for row in rows:
        flow = flow_definition(row)
        for problem in flow_problems(flow, types):
            if flow.is_active or not problem.is_missing:
                problems.append(_problem(problem))
    if problems:
        raise Refused(problems)


def _problem(problem: FlowProblem) -> Problem:
    row = {"collection": problem.collection, "key": problem.key}
    return failed_validation(row, problem.path, problem.reason)


def hooks_of_flows(types: Mapping[str, Options]) -> Mapping[str, TableHooks]:
    """Return the hooks of flows and operations, for the types of operations that there are."""
    # Only administrators write them: an operation may act with all rights, and so would its author.
    flow_hooks = TableHooks(
        missing_targets={"operation": NO_OPERATION},
        is_admin_only=True,
        checks={
            "color": check_color,
            "trigger": one_of(*choices_of(FLOWS, "trigger")),
            "options": _check_options,
        },
        after=partial(_after_flows, types),
    )
    operation_hooks = TableHooks(
        missing_targets=dict.fromkeys(ENDS, NO_OPERATION),
        is_admin_only=True,
        checks={"type": one_of(*types), "key": _check_key, "options": _check_options},
        before=_before_operations,
        after=partial(_after_operations, types),
    )
    return {FLOWS: flow_hooks, OPERATIONS: operation_hooks}
