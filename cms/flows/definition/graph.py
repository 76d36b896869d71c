"""The operations of a flow as a graph: the first one, and the successors of each.

An operation leads to one other in case of success (`resolve`) and to one in case of failure
(`reject`). Ways may join again, but none leads back.
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
    if graph.first is not None and graph.first not in graph.operations:
        yield GraphProblem(None, "operation", NO_OPERATION)
    for operation in graph.operations.values():
        for end in ENDS:
            target = operation.next(end)
            if target is not None and target not in graph.operations:
                yield GraphProblem(operation.id, end, NO_OPERATION)
    for edge in _edges_back(graph):
        yield GraphProblem(edge.source, edge.field, "it leads back to an operation before it")


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
