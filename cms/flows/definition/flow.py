"""A flow as its rows define it, and its problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cms import jsontext
from cms.flows.definition.graph import FlowOperation, Graph, graph_problems
from cms.flows.definition.options import Options
from cms.flows.definition.trigger_types import FILTER_SCOPES, SCOPES, TRIGGER_TYPES
from cms.option_checks import IncompleteOption, OptionError
from cms.schema.system import FLOWS, OPERATIONS


@dataclass(frozen=True, slots=True)
class FlowDefinition:
    """A flow: its trigger with the options, and its operations in the order of their creation."""

    id: str
    trigger: str | None
    options: Mapping[str, object]
    graph: Graph
    is_active: bool = True
    accountability: str | None = "all"

    @property
    def may_stop(self) -> bool:
        """Tell whether a condition that does not hold ends a run without a rejection.

        The caller of a webhook or of a write must learn that the flow did not go on.
        """
        return self.trigger != "webhook" and self.options.get("type") != "filter"


class FlowProblem(NamedTuple):
    """A problem of a flow, with its row and the path inside the row."""

    collection: str
    key: str
    path: tuple[str | int, ...]
    reason: str
    is_missing: bool = False
    """Something is not there yet, as an inactive flow may lack it."""


def flow_definition(row: Sequence[Any]) -> FlowDefinition:
    """Return the flow of a row of `find_flow_definitions`."""
    identifier, trigger, options, first, operations, is_active, accountability = row
    entries = jsontext.loads_stored(operations)
    assert isinstance(entries, list)
    by_id = {entry["id"]: FlowOperation(**entry) for entry in entries}
    graph = Graph(by_id, first or _only_beginning(by_id))
    return FlowDefinition(identifier, trigger, _loads(options), graph, is_active, accountability)


def flow_problems(flow: FlowDefinition, types: Mapping[str, Options]) -> Iterator[FlowProblem]:
    """Yield the problems of a flow and its operations, which have the options of their types."""
    # Without a trigger nothing starts the flow, and there are no options to check.
    if flow.trigger is not None:
        for error in TRIGGER_TYPES[flow.trigger].errors(flow.options):
            yield _option_problem(FLOWS, flow.id, error)
        yield from _filter_problems(flow)
    for operation in flow.graph.operations.values():
        yield from _operation_problems(operation, types)
    for problem in graph_problems(flow.graph):
        collection = FLOWS
        key = flow.id
        if problem.operation is not None:
            collection = OPERATIONS
            key = problem.operation
        yield FlowProblem(collection, key, (problem.field,), problem.reason)


def _filter_problems(flow: FlowDefinition) -> Iterator[FlowProblem]:
    """Yield the events that only action flows can wait for, where a filter flow names them."""
    scopes = flow.options.get("scope")
    if flow.options.get("type") != "filter" or not isinstance(scopes, list):
        return
    for index, scope in enumerate(scopes):
        if scope in SCOPES and scope not in FILTER_SCOPES:
            reason = "only flows of the type action wait for it"
            yield FlowProblem(FLOWS, flow.id, ("options", "scope", index), reason)


def _operation_problems(
    operation: FlowOperation, types: Mapping[str, Options]
) -> Iterator[FlowProblem]:
    options = types.get(operation.type)
    if options is None:
        reason = f"it is one of {', '.join(types)}"
        yield FlowProblem(OPERATIONS, operation.id, ("type",), reason)
        return
    for error in options.errors(operation.options):
        yield _option_problem(OPERATIONS, operation.id, error)


def _option_problem(collection: str, key: str, error: OptionError) -> FlowProblem:
    is_missing = isinstance(error, IncompleteOption)
    return FlowProblem(collection, key, ("options", *error.path), str(error), is_missing)


def _only_beginning(operations: Mapping[str, FlowOperation]) -> str | None:
    """Return the first operation of a flow that names none.

    That is the oldest operation to which no other one leads.
    """
    targets: set[str | None] = set()
    for operation in operations.values():
        targets.add(operation.resolve)
        targets.add(operation.reject)
    # Operations come in the order of their creation, so that the first match is the oldest.
    for identifier in operations:
        if identifier not in targets:
            return identifier
    return None


def _loads(text: str | None) -> Mapping[str, object]:
    if text is None:
        return {}
    value = jsontext.loads_stored(text)
    if isinstance(value, dict):
        return value
    return {}
