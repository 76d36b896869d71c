"""A flow as its rows define it, with its operations as a graph, and its problems.

An operation leads to one other in case of success (`resolve`) and to one in case of failure
(`reject`). Ways may join again, but none leads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cms import jsontext
from cms.flows.definition.options import Options
from cms.flows.definition.trigger_types import FILTER_SCOPES, SCOPES, TRIGGER_TYPES
from cms.option_checks import IncompleteOption, OptionError
from cms.schema.system import FLOWS, OPERATIONS

ENDS = ("resolve", "reject")
NO_OPERATION = "the flow has no such operation"


class FlowOperation(NamedTuple):
    """One operation as its row says."""

    id: str
    key: str
    type: str
    options: Mapping[str, object]
    resolve: str | None = None
    reject: str | None = None

    def next(self, end: str) -> str | None:
        if end == "resolve":
            return self.resolve
        return self.reject


@dataclass(frozen=True, slots=True)
class Graph:
    """The operations of one flow by id, and the first one."""

    operations: Mapping[str, FlowOperation]
    first: str | None = None


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
    yield from graph_problems(flow)


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


def graph_problems(flow: FlowDefinition) -> Iterator[FlowProblem]:
    """Yield the problems of the ends and the keys of a flow's operations.

    The database makes sure that keys are unique within a flow.
    """
    graph = flow.graph
    for operation in graph.operations.values():
        if operation.key.startswith("$"):
            reason = "names with $ are those of the run"
            yield FlowProblem(OPERATIONS, operation.id, ("key",), reason)
    if graph.first is not None and graph.first not in graph.operations:
        yield FlowProblem(FLOWS, flow.id, ("operation",), NO_OPERATION)
    for operation in graph.operations.values():
        for end in ENDS:
            target = operation.next(end)
            if target is not None and target not in graph.operations:
                yield FlowProblem(OPERATIONS, operation.id, (end,), NO_OPERATION)
    for edge in _edges_back(graph):
        reason = "it leads back to an operation before it"
        yield FlowProblem(OPERATIONS, edge.source, (edge.field,), reason)


class _Edge(NamedTuple):
    """A connection to an operation, from an end of another one."""

    source: str
    field: str
    target: str


def _edges_back(graph: Graph) -> Iterator[_Edge]:
    """Yield the edges without which the graph has no cycle, by a search in depth."""
    beginnings = list(graph.operations)
    if graph.first in graph.operations:
        beginnings.insert(0, str(graph.first))
    visited: set[str] = set()
    # A stack instead of recursion: a flow may have thousands of operations.
    before: set[str] = set()
    for beginning in beginnings:
        pending = [_leaving(beginning, graph, visited, before)]
        way = [beginning]
        while pending:
            edge = next(pending[-1], None)
            if edge is None:
                pending.pop()
                before.discard(way.pop())
            elif edge.target in before:
                yield edge
            elif edge.target not in visited:
                way.append(edge.target)
                pending.append(_leaving(edge.target, graph, visited, before))


def _leaving(identifier: str, graph: Graph, visited: set[str], before: set[str]) -> Iterator[_Edge]:
    """Return the edges that leave an operation, which is on the way from now on."""
    if identifier in visited:
        return iter(())
    visited.add(identifier)
    before.add(identifier)
    operation = graph.operations[identifier]
    edges = []
    for end in ENDS:
        target = operation.next(end)
        if target in graph.operations:
            edges.append(_Edge(identifier, end, str(target)))
    return iter(edges)


def _only_beginning(operations: Mapping[str, FlowOperation]) -> str | None:
    """Return the first operation of a flow that names none.

    That is the oldest operation to which no other one leads.
    """
    targets = {operation.next(end) for operation in operations.values() for end in ENDS}
    # Operations come in the order of their creation, so that the first match is the oldest.
    return next((identifier for identifier in operations if identifier not in targets), None)


def _loads(text: str | None) -> Mapping[str, object]:
    value = jsontext.loads_optional(text)
    return value if isinstance(value, dict) else {}
