"""Filters, order and groups by paths into JSON: PostgreSQL compared with a plain model of them,
and with the same words as a rule that is tried in Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cms import jsontext
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import resolve_rule
from cms.query.rules.validation import RuleContext, failures
from tests.client import Client
from tests.examples import example_count
from tests.things import Stage, Table, field, table

NAMES = ("a", "b", "0", "1", "-1")
SCALARS: list[Any] = [
    *(None, True, False, 0, 1, -1, 5, 10, 1.5, 0.1, 1e2, 100, 12345678901234567890),
    *("", "a", "A", "ab", "5", "true", "null", "ä", "%", "_", '"', "\\", "\\u0000", "[]", "1e2"),
]
OPERANDS = [value for value in SCALARS if value is not None]

documents = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple)

cases = settings(
    max_examples=example_count(120),
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


# The model


def at(document: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.lstrip("-").isdecimal():
            index = int(step)
            if index < 0:
                index += len(document)
            document = document[index] if 0 <= index < len(document) else None
        else:
            return None
    return document


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float | Decimal):
        return "number"
    return "text" if isinstance(value, str) else "other"


def same(value: Any, operand: Any) -> bool:
    return kind(value) == kind(operand) != "other"


def exact(value: Any) -> Any:
    return Decimal(repr(value)) if isinstance(value, float) else value


def compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, operand: same(value, operand) and compare(exact(value), exact(operand))


equals = compared(lambda value, operand: value == operand)


def between(value: Any, operands: list[Any]) -> bool:
    return all(same(value, operand) for operand in operands) and (
        exact(operands[0]) <= exact(value) <= exact(operands[1])
    )


def not_between(value: Any, operands: list[Any]) -> bool:
    return all(same(value, operand) for operand in operands) and not between(value, operands)


def none_of(value: Any, operands: list[Any]) -> bool:
    if not operands:
        return True
    return any(same(value, item) for item in operands) and not one_of(value, operands)


def one_of(value: Any, operands: list[Any]) -> bool:
    return any(equals(value, item) for item in operands)


def contains(value: Any, part: str) -> bool | None:
    if isinstance(value, str):
        return part in value
    return part in value if isinstance(value, list) else None


def of_text(compare: Callable[[str, str], bool]) -> Callable[[Any, str], bool]:
    return lambda value, part: isinstance(value, str) and compare(value, part)


MODEL: dict[str, Callable[[Any, Any], bool]] = {
    "_eq": equals,
    "_neq": compared(lambda value, operand: value != operand),
    "_lt": compared(lambda value, operand: value < operand),
    "_lte": compared(lambda value, operand: value <= operand),
    "_gt": compared(lambda value, operand: value > operand),
    "_gte": compared(lambda value, operand: value >= operand),
    "_in": one_of,
    "_nin": none_of,
    "_between": between,
    "_nbetween": not_between,
    "_null": lambda value, flag: (value is None) == flag,
    "_nnull": lambda value, flag: (value is not None) == flag,
    "_empty": lambda value, flag: (value in (None, "", [], {}) and value is not False) == flag,
    "_contains": lambda value, part: contains(value, part) is True,
    "_ncontains": lambda value, part: contains(value, part) is False,
    "_starts_with": of_text(lambda value, part: value.startswith(part)),
    "_nends_with": of_text(lambda value, part: not value.endswith(part)),
    "_icontains": of_text(lambda value, part: part.lower() in value.lower()),
    "_ieq": of_text(lambda value, part: value.lower() == part.lower()),
}

scalars = st.sampled_from(OPERANDS)
texts = st.sampled_from([value for value in OPERANDS if isinstance(value, str)])


@st.composite
def filters(draw: st.DrawFn) -> tuple[tuple[str, ...], str, Any]:
    operator = draw(st.sampled_from(sorted(MODEL)))
    if operator in ("_in", "_nin"):
        operand: Any = draw(st.lists(scalars, max_size=3))
    elif operator in ("_between", "_nbetween"):
        operand = draw(st.lists(scalars, min_size=2, max_size=2))
    elif operator in ("_null", "_nnull", "_empty"):
        operand = draw(st.booleans())
    elif operator in ("_eq", "_neq", "_lt", "_lte", "_gt", "_gte"):
        operand = draw(scalars)
    else:
        operand = draw(texts)
    return draw(paths), operator, operand


@pytest.fixture(scope="module")
def stored(stage: Stage, admin: Client) -> tuple[Table, list[Any]]:
    """Documents of any form, as json and as jsonb."""
    things = table(admin, field("meta", "json"))
    stage.execute(f'ALTER TABLE "{things.name}" ADD other jsonb')
    # Every scalar of every type stands at one path.
    stored_documents: list[Any] = [{"a": value} for value in (*SCALARS, [], {}, ["a", True, 1])]

    @settings(max_examples=150, database=None, deadline=None, phases=[Phase.generate])
    @given(document=documents)
    def collect(document: Any) -> None:
        stored_documents.append(document)

    collect()
    things.add(*({"meta": document, "other": document} for document in stored_documents))
    return things, stored_documents


def ids_by_query(things: Table, filter: object) -> list[int]:
    query = {"filter": filter, "fields": ["id"], "sort": ["id"], "limit": -1}
    answer = things.api.search(things.path, query)
    assert answer.status == 200, answer
    return [item["id"] for item in answer.data]


def compare_all(
    stage: Stage, stored: tuple[Table, list[Any]], path: tuple[str, ...], test: dict[str, Any]
) -> None:
    """Compare the items of a filter as PostgreSQL, the rule in Python and the model find them."""
    things, stored_documents = stored
    [(operator, operand)] = test.items()
    holds = MODEL[operator]
    by_model = [n for n, item in enumerate(stored_documents, 1) if holds(at(item, path), operand)]
    for column in ("meta", "other"):
        assert ids_by_query(things, {".".join((column, *path)): test}) == by_model
    collection = stage.admin.app.store.snapshots.current().catalogue.collections[things.name]
    rule = resolve_rule(parse_rule({".".join(("meta", *path)): test}), collection)
    sent: Any = jsontext.loads(jsontext.dumps(stored_documents))
    context = RuleContext()
    by_rule = [n for n, item in enumerate(sent, 1) if not failures(rule, {"meta": item}, context)]
    assert by_rule == by_model


def test_a_filter_and_a_rule_by_a_path_hold_where_those_of_the_model_do(
    stage: Stage, stored: tuple[Table, list[Any]]
) -> None:
    @cases
    @given(case=filters())
    def compare(case: tuple[tuple[str, ...], str, Any]) -> None:
        path, operator, operand = case
        compare_all(stage, stored, path, {operator: operand})

    compare()


@pytest.mark.parametrize("operator", ["_eq", "_neq", "_lt", "_lte", "_gt", "_gte", "_in", "_nin"])
def test_every_type_compares_with_itself_alone(
    stage: Stage, stored: tuple[Table, list[Any]], operator: str
) -> None:
    operands: list[Any] = [True, 1, "a"]
    if operator in ("_in", "_nin"):
        operands = [[1], [True], [1, False], ["a", 1], []]
    for operand in operands:
        compare_all(stage, stored, ("a",), {operator: operand})


def test_operands_in_brackets_are_read_as_json(stored: tuple[Table, list[Any]]) -> None:
    things, stored_documents = stored

    @cases
    @given(path=paths, operand=scalars)
    def compare(path: tuple[str, ...], operand: Any) -> None:
        name = f"filter[meta.{'.'.join(path)}][_eq]"
        answer = things.get(**{name: json.dumps(operand)}, fields="id", sort="id", limit=-1)
        by_model = [
            n for n, item in enumerate(stored_documents, 1) if equals(at(item, path), operand)
        ]
        assert [item["id"] for item in answer.data] == by_model

    compare()


def order_key(value: Any) -> tuple[int, Any]:
    """Texts, numbers, booleans, and what is not compared."""
    rank = ("text", "number", "boolean", "other").index(kind(value))
    return rank, exact(value) if rank < 3 else 0


def test_order_and_groups_by_a_path_are_those_of_the_model(
    stored: tuple[Table, list[Any]],
) -> None:
    things, stored_documents = stored

    @cases
    @given(path=paths)
    def compare(path: tuple[str, ...]) -> None:
        name = ".".join(("meta", *path))
        values = {n: at(item, path) for n, item in enumerate(stored_documents, 1)}
        expected = sorted(values, key=lambda number: (order_key(values[number]), number))
        ordered = things.column("id", f"fields=id&limit=-1&sort={name},id")
        assert [(n, values[n]) for n in ordered] == [(n, values[n]) for n in expected]
        sizes: dict[tuple[int, Any], int] = {}
        for value in values.values():
            sizes[order_key(value)] = sizes.get(order_key(value), 0) + 1
        groups = things.read(f"groupBy={name}&aggregate[count]=*&sort={name}&limit=-1").data
        assert [group["count"] for group in groups] == [sizes[key] for key in sorted(sizes)]

    compare()
