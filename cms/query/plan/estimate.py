"""The rows that PostgreSQL expects in the lists of an answer, from EXPLAIN (FORMAT JSON)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Node = Mapping[str, Any]

_READ_WHOLE = frozenset(
    {"Sort", "Aggregate", "Hash", "Materialize", "WindowAgg", "SetOp", "Unique"}
)
"""Nodes that read all rows of the node below, however few rows are asked of them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The rows of the answer's own list, and of all lists in its items together.

    `heaviest` are the rows of one item whose lists, at every level, are as long as the longest that
    exists.
    """

    top: float
    nested: float
    heaviest: float = 0


def estimate_of(plan: Sequence[Mapping[str, Node]]) -> Estimate:
    """Return the estimate of the plan of a read (cms/query/sql/select.py)."""
    # The root joins the one row of system_version with the rows of the answer; only these count.
    root = plan[0]["Plan"]
    top = 0.0
    nested = 0.0
    for node in root.get("Plans", ()):
        if not _is_version(node):
            top += _rows(node)
            nested += _nested(node, 1, 1)
    return Estimate(top, nested)


def expected_rows(plan: Sequence[Mapping[str, Node]]) -> float:
    """Return how many rows PostgreSQL expects of a statement."""
    return _rows(plan[0]["Plan"])


def _nested(node: Node, loops: float, share: float) -> float:
    """Return the rows of the lists below a node.

    The node runs `loops` times, and a `share` of its rows is asked for.
    """
    # "Plan Rows" is what PostgreSQL expects of one run of a node, not of all its loops.
    rows = _rows(node) * share
    total = 0.0
    # EXPLAIN lists the outer side of a join first: the inner side of a nested loop runs once for
    # each of its rows.
    outer = 1.0
    for child in node.get("Plans", ()):
        match child.get("Parent Relationship"):
            # A sub-select in the outputs runs for each row that the node gives.
            case "SubPlan":
                total += _sub_plan(node, child, loops * rows)
            case "InitPlan":  # runs once, for the parameters of the other nodes
                pass
            case "Inner" if node["Node Type"] == "Nested Loop":
                total += _nested(child, loops * outer, 1)
            case _:
                child_share = _share(node, child, share)
                total += _nested(child, loops, child_share)
                outer = _rows(child) * child_share
    return total


def _sub_plan(node: Node, child: Node, loops: float) -> float:
    """Return the rows of a list and of the lists in it; a sub-plan of a filter is no list."""
    if _is_in_filter(node, str(child.get("Subplan Name"))):
        return 0
    total = _nested(child, loops, 1)
    # A list is an aggregate (json_agg) of the rows of the node below.
    if child["Node Type"] == "Aggregate":
        for rows in child.get("Plans", ()):
            total += loops * _rows(rows)
    return total


def _share(node: Node, child: Node, share: float) -> float:
    # The node below expects all of its rows, and is asked for those that pass the limit.
    if node["Node Type"] == "Limit":
        return share * min(1.0, _rows(node) / max(_rows(child), 1.0))
    if node["Node Type"] in _READ_WHOLE:
        return 1.0
    return share


def _is_in_filter(node: Node, name: str) -> bool:
    # A condition names its sub-plans, as in `(SubPlan 1)`; what follows tells 1 from 10.
    for key, value in node.items():
        # "Filter", "Join Filter", "Index Cond", "Hash Cond" and the like.
        if key.endswith(("Filter", "Cond")):
            condition = str(value)
            if f"{name})" in condition or f"{name} " in condition:
                return True
    return False


def _is_version(node: Node) -> bool:
    return node.get("Relation Name") == "system_version"


def _rows(node: Node) -> float:
    return float(node["Plan Rows"])
