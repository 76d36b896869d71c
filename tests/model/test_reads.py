"""Reads through relations equal a plain Python model of them, whatever
the schema, the rows and the query.

A failure prints the rows, the query, and what repeats it: CMS_MODEL_SEED, which
the schemas come from, and hypothesis's own line. The schemas and the cases are
others each time, on CI always the same.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from decimal import Decimal
from random import Random, SystemRandom
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.client import Answer, Client
from tests.examples import example_count
from tests.model.build import load, make_shape, tables_of
from tests.model.encode import query_string
from tests.model.generate import all_rows, queries
from tests.model.reads import answer
from tests.model.shape import Row, Shape
from tests.things import Stage

SCHEMAS = 5
QUICK_SCHEMAS = 2
SCHEMA_NUMBERS = [
    pytest.param(number, marks=[] if number < QUICK_SCHEMAS else pytest.mark.release)
    for number in range(SCHEMAS)
]
CASES_FOR_EACH = 100
SEED = os.environ.get("CMS_MODEL_SEED") or (
    "ci" if "CI" in os.environ else str(SystemRandom().randrange(10**6))
)

pytestmark = pytest.mark.slow

cases_for_each = settings(
    max_examples=example_count(CASES_FOR_EACH),
    deadline=None,
    database=None,  # an example of another seed's schemas would mean nothing
    derandomize="CI" in os.environ,
    print_blob=True,
    phases=[Phase.generate, Phase.shrink],  # to explain a failure takes minutes
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class ReadCase:
    rows: dict[str, list[Row]]
    collection: str
    query: dict[str, Any]
    form: str


@st.composite
def cases(draw: st.DrawFn, shape: Shape) -> ReadCase:
    rows = draw(all_rows(shape))
    name = draw(st.sampled_from(sorted(shape)))
    form = draw(st.sampled_from(("SEARCH", "QUERY", "brackets", "JSON")))
    return ReadCase(rows, name, draw(queries(shape, shape[name])), form)


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", SCHEMA_NUMBERS)
def test_a_read_answers_what_the_model_answers(
    stage: Stage, connection: psycopg.Connection, number: int
) -> None:
    shape = make_shape(stage.admin, f"s{number}", Random(f"{SEED}-{number}"))

    @cases_for_each
    @given(case=cases(shape))
    def compare(case: ReadCase) -> None:
        load(connection, shape, case.rows)
        note(f"CMS_MODEL_SEED={SEED}")
        reply = send(stage.admin, case)
        assert reply.status == 200, reply.text
        expected = answer(
            tables_of(connection, shape, case.rows), shape[case.collection], case.query
        )
        assert comparable(json.loads(reply.text, parse_float=Decimal)) == comparable(expected)

    compare()


def send(api: Client, case: ReadCase) -> Answer:
    path = f"/items/{case.collection}"
    if case.form in ("SEARCH", "QUERY"):
        return api.send(case.form, path, {"query": case.query})
    query_text = query_string(case.query, brackets=case.form == "brackets")
    note(f"GET {path}?{query_text}")
    return api.send("GET", f"{path}?{query_text}")


def comparable(value: Any) -> Any:
    """Return a JSON value with exact numbers, where true is not 1."""
    match value:
        case bool():
            return f"<{value}>"
        case int() | Decimal():
            return Decimal(value)
        case dict():
            return {key: comparable(item) for key, item in value.items()}
        case list():
            return [comparable(item) for item in value]
        case _:
            return value
