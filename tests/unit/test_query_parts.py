"""The parts of a refused query: tried one by one, until they exceed a limit together."""

from __future__ import annotations

from cms.errors import invalid_query
from cms.query.language.ast import Query
from cms.query.language.limits import Tally
from cms.query.language.paging import PageSizes
from cms.query.language.parse import parse
from cms.query.language.query_parts import refusal_of_all


def test_parts_that_exceed_a_limit_together_are_the_last_that_are_tried() -> None:
    query = parse({"fields": ["a", "b", "c", "d", "e"]}, PageSizes()).query
    tried: list[Query] = []
    tally = Tally()

    def attempt(part: Query) -> None:
        tried.append(part)
        tally.add(1, "parts", maximum=2, parameter="fields")
        raise invalid_query(f"part {len(tried)}", parameter="fields")

    refused = refusal_of_all(query, attempt, first=invalid_query("all", parameter="fields"))
    assert len(tried) == 3
    reasons = [problem.extensions["reason"] for problem in refused.problems]
    assert reasons == ["all", "part 1", "part 2"]
