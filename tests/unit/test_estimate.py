"""The number of rows in lists that PostgreSQL's plan of a read expects."""

from __future__ import annotations

from typing import Any

from cms.query.plan.estimate import Estimate, estimate_of


def node(kind: str, rows: float, *below: dict[str, Any], **details: str) -> dict[str, Any]:
    described = {key.replace("_", " "): value for key, value in details.items()}
    return {"Node Type": kind, "Plan Rows": rows, "Plans": list(below), **described}


def listed(rows: float, *below: dict[str, Any], name: str = "SubPlan 1") -> dict[str, Any]:
    inner = node("Subquery Scan", rows, node("Limit", rows, node("Index Scan", 10 * rows, *below)))
    return node("Aggregate", 1, inner, Parent_Relationship="SubPlan", Subplan_Name=name)


def expected(rows: dict[str, Any]) -> Estimate:
    version = node("Seq Scan", 1700, Relation_Name="system_version", Parent_Relationship="Outer")
    return estimate_of([{"Plan": node("Nested Loop", 1700 * rows["Plan Rows"], version, rows)}])


def test_lists_are_multiplied_by_the_rows_that_hold_them() -> None:
    plan = node(
        "Limit", 25, node("Index Scan", 100_000, listed(10, listed(4))), Parent_Relationship="Inner"
    )
    assert expected(plan) == Estimate(25, 25 * 10 + 25 * 10 * 4)


def test_what_is_sorted_is_worked_out_for_every_row() -> None:
    plan = node("Limit", 25, node("Sort", 1000, node("Seq Scan", 1000, listed(10))))
    assert expected(plan) == Estimate(25, 1000 * 10)


def test_what_filters_look_up_is_no_list() -> None:
    plan = node("Seq Scan", 1000, listed(10), Filter="(EXISTS(SubPlan 1))")
    assert expected(plan) == Estimate(1000, 0)
    other = node("Seq Scan", 1000, listed(10, name="SubPlan 1"), Filter="(EXISTS(SubPlan 12))")
    assert expected(other) == Estimate(1000, 10_000)


def test_one_related_item_is_no_list_but_leads_to_them() -> None:
    one = node("Index Scan", 1, listed(10), Parent_Relationship="SubPlan", Subplan_Name="SubPlan 2")
    assert expected(node("Seq Scan", 5, one)) == Estimate(5, 50)


def test_rows_of_a_join_hold_lists_each() -> None:
    inner = node("Index Scan", 2, listed(10), Parent_Relationship="Inner")
    join = node("Nested Loop", 14, node("Seq Scan", 7, Parent_Relationship="Outer"), inner)
    assert expected(join) == Estimate(14, 7 * 2 * 10)


def test_what_runs_once_for_the_parameters_is_no_list() -> None:
    aggregate = node(
        "Aggregate",
        1,
        node("Seq Scan", 5_000_000),
        Parent_Relationship="InitPlan",
        Subplan_Name="InitPlan 1",
    )
    assert expected(node("Seq Scan", 1, aggregate)) == Estimate(1, 0)
