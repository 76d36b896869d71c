"""A rule tried on payloads finds the same items as the filter of the same words does in
PostgreSQL.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cms import jsontext
from cms.query.language.operators import RULE_OPERATORS, OperandKind, Operator
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import resolve_rule
from cms.query.rules.validation import RuleContext, failures
from cms.schema.model import Collection
from cms.schema.types import TYPES
from tests.client import Client
from tests.examples import example_count
from tests.things import Stage, Table, field, table

TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "aB",
    "b",
    "%",
    "_",
    "\\",
    "a%b",
    "ä",
    "Ä",
    "ß",
    "İ",
    "Σ",
    "σ",
    "ς",
    "ΟΔΟΣ",
    "οδός οδος",
    "ẞ",
    "STRASSE",
    "straße",
    "ı",
    "I",
    "i",
    "10",
    "9",
    "e\u0301",
]
POOLS: dict[str, list[Any]] = {
    "string": TEXTS,
    "integer": [0, 1, -1, 9, 10, "7", 2**31 - 1],
    "bigInteger": [0, 2**63 - 1, 2**63 - 2, -(2**63), "12"],
    "float": [0, 0.1, "0.1", 1e300, -2.5, "1e-300", 0.30000000000000004, 0.3],
    "decimal": ["0.1", "0.10", "0.1000000000000000000001", "-3", 5, "1e20"],
    "boolean": [True, False, "true", "0"],
    "date": ["2024-02-29", "2024-03-01", "1999-12-31"],
    "time": ["00:00:00", "12:30:00", "12:30:00.5", "23:59:59"],
    "datetime": [
        "2024-02-29T10:00:00",
        "2024-02-29T12:00:00+02:00",
        "2024-02-29",
        "1999-12-31T23:59:59.999",
    ],
    "timestamp": [
        "2024-02-29T10:00:00Z",
        "2024-02-29T12:00:00+02:00",
        "2024-02-29",
        "2100-01-01T00:00:00",
    ],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12"],
    "csv": [["a"], ["a", "b"], "b,a", [], "", ["Ab"]],
    "json": [{}, [], "", "x", {"a": []}, [1], 0, False],
}
FUNCTIONS = {
    "date": ["year", "week", "weekday"],
    "timestamp": ["month", "hour"],
    "time": ["second"],
    "csv": ["count"],
}

cases_of_all = settings(
    max_examples=example_count(150),
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def rows(admin: Client) -> tuple[Table, list[dict[str, Any]]]:
    """Every value of every pool, and a null, each in some item."""
    things = table(admin, *(field(f"f_{kind.lower()}", kind) for kind in POOLS))
    longest_pool = max(len(pool) for pool in POOLS.values()) + 1
    items = [
        {f"f_{k.lower()}": (pool[n] if n < len(pool) else None) for k, pool in POOLS.items()}
        for n in range(longest_pool)
    ]
    things.add(*items)
    return things, items


@pytest.fixture(scope="module")
def collection(stage: Stage, rows: tuple[Table, list[dict[str, Any]]]) -> Collection:
    return stage.admin.app.store.snapshots.current().catalogue.collections[rows[0].name]


def operand_of(operator: Operator, pool: list[Any]) -> st.SearchStrategy[Any]:
    one = st.sampled_from([value for value in pool if not isinstance(value, list | dict)] or [""])
    match operator.operand_kind:
        case OperandKind.NOTHING:
            return st.booleans()
        case OperandKind.LIST:
            return st.lists(one, max_size=3)
        case OperandKind.TWO:
            return st.tuples(one, one).map(list)
        case OperandKind.PATTERN:
            return st.sampled_from(TEXTS)
        case _:
            return one


@st.composite
def single_tests(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a test that fits its field, with a function of it where it has one."""
    kind = draw(st.sampled_from(sorted(POOLS)))
    name = f"f_{kind.lower()}"
    pool = POOLS[kind]
    called = draw(st.sampled_from([None, *FUNCTIONS.get(kind, [])]))
    if called:
        name = f"{called}({name})"
        kind = "integer"
        pool = [0, 1, 2, 5, 9, 10, 12, 30, 52, 1999, 2024]
    operator = draw(
        st.sampled_from(
            [candidate for candidate in RULE_OPERATORS.values() if fits(candidate, kind)]
        )
    )
    return {name: {operator.name: draw(operand_of(operator, pool))}}


def fits(operator: Operator, kind: str) -> bool:
    return bool(operator.sql) and operator.trait in TYPES[kind].traits


def trees() -> st.SearchStrategy[dict[str, Any]]:
    return st.recursive(
        single_tests(),
        lambda inner: st.dictionaries(
            st.sampled_from(["_and", "_or"]), st.lists(inner, max_size=3), min_size=1
        ),
    )


@pytest.mark.release
def test_a_rule_holds_for_the_items_that_the_filter_finds(
    rows: tuple[Table, list[dict[str, Any]]], collection: Collection
) -> None:
    things, items = rows
    sent: Any = jsontext.loads(jsontext.dumps(items))

    @cases_of_all
    @given(tree=trees())
    def compare(tree: dict[str, Any]) -> None:
        answer = things.api.search(things.path, {"filter": tree, "fields": ["id"], "sort": ["id"]})
        by_database = [item["id"] for item in answer.data]
        rule = resolve_rule(parse_rule(tree), collection)
        under = RuleContext()
        by_rule = [n for n, item in enumerate(sent, start=1) if not failures(rule, item, under)]
        assert by_rule == by_database

    compare()


@pytest.mark.parametrize("name", ["_ieq", "_nieq", "_icontains", "_istarts_with", "_iends_with"])
def test_letters_without_one_small_form_are_the_same_in_a_rule_and_in_a_filter(
    rows: tuple[Table, list[dict[str, Any]]], collection: Collection, name: str
) -> None:
    things, items = rows
    sent: Any = jsontext.loads(jsontext.dumps(items))
    for operand in TEXTS[10:]:
        test = {"f_string": {name: operand}}
        answer = things.api.search(things.path, {"filter": test, "fields": ["id"], "sort": ["id"]})
        rule = resolve_rule(parse_rule(test), collection)
        under = RuleContext()
        by_rule = [n for n, item in enumerate(sent, start=1) if not failures(rule, item, under)]
        assert by_rule == [item["id"] for item in answer.data], operand
