"""The operations of a flow as a graph: the first one, and the successors of each.

An operation leads to one other in case of success (`resolve`) and to one in case of failure
(`reject`). Each has at most one edge in, so a flow is a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

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


class GraphProblem(NamedTuple):
    """A problem of a graph, with its operation (None: the flow itself) and its field."""

    operation: str | None
    field: str
    reason: str


def graph_problems(graph: Graph) -> Iterator[GraphProblem]:
    """Yield the problems of the ends and the keys of a flow's operations.

    The database makes sure that keys are unique within a flow.
    """
    for operation in graph.operations.values():
        if operation.key.startswith("$"):
            yield GraphProblem(operation.id, "key", "names with $ are those of the run")
    # Edges are added one by one, so that a problem is that of the edge that causes it. Without
    # problems the graph is a tree.
    sources: dict[str, str | None] = {}
    for edge in _edges(graph):
        reason = _reason_against(edge, graph, sources)
        if reason is not None:
            yield GraphProblem(edge.source, edge.field, reason)
        else:
            sources[edge.target] = edge.source


class _Edge(NamedTuple):
    """A connection to an operation, from an end of another one or from the flow."""

    source: str | None
    field: str
    target: str


def _edges(graph: Graph) -> Iterator[_Edge]:
    if graph.first is not None:
        # None stands for the flow itself, whose field `operation` names the first one.
        yield _Edge(None, "operation", graph.first)
    for operation in graph.operations.values():
        for end in ENDS:
            target = operation.next(end)
            if target is not None:
                yield _Edge(operation.id, end, target)


def _reason_against(edge: _Edge, graph: Graph, sources: Mapping[str, str | None]) -> str | None:
    """Return why an edge cannot be added to those that `sources` has: each target, its source."""
    if edge.target not in graph.operations:
        return NO_OPERATION
    # Each operation has one source at most, so the operations before it form a line.
    before = edge.source
    while before is not None:
        if before == edge.target:
            return "it leads back to an operation before it"
        before = sources.get(before)
    if edge.target in sources:
        return "another operation, or the flow itself, already leads there"
    return None
