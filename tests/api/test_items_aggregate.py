"""Aggregates and groups."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.things import Json, Table, field, table

BIG = 2**63 - 1


@pytest.fixture(scope="module")
def sales(admin: Client) -> Table:
    sales = table(
        admin,
        field("shop", "string"),
        field("pieces", "integer"),
        field("big", "bigInteger"),
        field("price", "decimal"),
        field("weight", "float"),
        field("at", "timestamp"),
        field("open", "boolean"),
        field("tags", "csv"),
        field("extra", "json"),
        field("secret", "hash"),
    )
    sales.add(
        {
            "shop": "a",
            "pieces": 1,
            "big": BIG,
            "price": "0.1",
            "weight": 0.5,
            "at": "2024-01-01",
            "open": True,
        },
        {
            "shop": "a",
            "pieces": 2,
            "big": BIG,
            "price": "0.2",
            "weight": 1.5,
            "at": "2024-06-01",
            "open": False,
        },
        {
            "shop": "b",
            "pieces": 2,
            "big": 1,
            "price": "12345678901234567890.123",
            "at": "2025-01-01",
            "tags": ["x"],
        },
        {"shop": None, "extra": {"a": 1}},
    )
    return sales


@pytest.mark.parametrize(
    ("query_string", "expected"),
    [
        ("aggregate[count]=*", '[{"count":4}]'),
        ("aggregate[countAll]=*", '[{"countAll":4}]'),
        ("aggregate[count]=", '[{"count":4}]'),
        ("aggregate[count]=id,shop", '[{"count":{"id":4,"shop":3}}]'),
        ("aggregate[count]=*,shop", '[{"count":{"*":4,"shop":3}}]'),
        ("aggregate[count]=extra,tags", '[{"count":{"extra":1,"tags":1}}]'),
        (
            "aggregate[countDistinct]=shop,pieces,open",
            '[{"countDistinct":{"shop":2,"pieces":2,"open":2}}]',
        ),
        ("aggregate[sum]=pieces,big", '[{"sum":{"pieces":5,"big":18446744073709551615}}]'),
        ("aggregate[sum]=price", '[{"sum":{"price":12345678901234567890.423}}]'),
        ("aggregate[sumDistinct]=pieces", '[{"sumDistinct":{"pieces":3}}]'),
        ("aggregate[avg]=pieces,weight", '[{"avg":{"pieces":1.6666666666666667,"weight":1}}]'),
        ("aggregate[avgDistinct]=pieces", '[{"avgDistinct":{"pieces":1.5}}]'),
        (
            "aggregate[min]=price,shop,at",
            '[{"min":{"price":0.1,"shop":"a","at":"2024-01-01T00:00:00.000Z"}}]',
        ),
        ("aggregate[max]=big,weight", f'[{{"max":{{"big":{BIG},"weight":1.5}}}}]'),
        (
            "aggregate[min]=pieces&aggregate[max]=pieces&aggregate[count]=*",
            '[{"min":{"pieces":1},"max":{"pieces":2},"count":4}]',
        ),
        ("aggregate[sum]=pieces&filter[id]=99", '[{"sum":{"pieces":null}}]'),
        ("aggregate[count]=*&filter[shop]=a", '[{"count":2}]'),
        ("aggregate[count]=*&search=b", '[{"count":1}]'),
        ('aggregate={"count":"*","sum":["pieces"]}', '[{"count":4,"sum":{"pieces":5}}]'),
        ("aggregate[count][]=id&aggregate[count][]=*", '[{"count":{"id":4,"*":4}}]'),
    ],
)
def test_aggregates_answer_an_array_with_exact_numbers(
    sales: Table, query_string: str, expected: str
) -> None:
    assert sales.read(query_string).text == f'{{"data":{expected}}}'


@pytest.mark.parametrize(
    ("query_string", "expected"),
    [
        ("groupBy=shop", [{"shop": "a"}, {"shop": "b"}, {"shop": None}]),
        (
            "groupBy=shop&aggregate[count]=*",
            [{"shop": "a", "count": 2}, {"shop": "b", "count": 1}, {"shop": None, "count": 1}],
        ),
        (
            "groupBy[]=year(at)&aggregate[sum]=pieces",
            [
                {"at_year": 2024, "sum": {"pieces": 3}},
                {"at_year": 2025, "sum": {"pieces": 2}},
                {"at_year": None, "sum": {"pieces": None}},
            ],
        ),
        (
            "groupBy=shop,open",
            [
                {"shop": "a", "open": False},
                {"shop": "a", "open": True},
                {"shop": "b", "open": None},
                {"shop": None, "open": None},
            ],
        ),
        ("groupBy=shop&aggregate[count]=*&sort=-count,shop&limit=1", [{"shop": "a", "count": 2}]),
        ("groupBy=shop&sort=-shop&limit=1&offset=1", [{"shop": "b"}]),
        ("groupBy=shop&sort=-sum.pieces&limit=1&filter[shop][_nnull]=true", [{"shop": "a"}]),
        (
            "groupBy=shop&sort=-count&aggregate[max]=pieces&limit=1",
            [{"shop": "a", "max": {"pieces": 2}}],
        ),
        ("groupBy=tags&limit=1", [{"tags": ["x"]}]),
        ("groupBy=at&limit=1", [{"at": "2024-01-01T00:00:00.000Z"}]),
        ("group=open&limit=1", [{"open": False}]),
    ],
)
def test_groups_stand_beside_their_aggregates(
    sales: Table, query_string: str, expected: list[Json]
) -> None:
    assert sales.read(query_string).data == expected


def test_the_one_row_of_aggregates_ignores_a_sort(sales: Table) -> None:
    for sort in ("id", "-shop", "-sum.pieces", "nothing", ""):
        answer = sales.read(f"aggregate[count]=*&sort={sort}")
        assert answer.data == [{"count": 4}], sort


def test_counts_beside_aggregates_are_of_items(sales: Table) -> None:
    answer = sales.read("aggregate[count]=*&groupBy=shop&meta=*&filter[shop]=a&limit=1")
    assert answer.body == {
        "data": [{"shop": "a", "count": 2}],
        "meta": {"total_count": 4, "filter_count": 2},
    }


@pytest.mark.parametrize(
    "query_string",
    [
        "aggregate[median]=pieces",
        "aggregate[sum]=shop",
        "aggregate[sum]=*",
        "aggregate[avg]=at",
        "aggregate[min]=open",
        "aggregate[max]=extra",
        "aggregate[countDistinct]=extra",
        "aggregate[sum]=nothing",
        "aggregate[count]=secret",
        "aggregate[sum]=year(at)",
        "aggregate=pieces",
        "aggregate[sum][x]=pieces",
        "groupBy=secret",
        "groupBy=extra",
        "groupBy=nothing",
        "groupBy=year(shop)",
        "groupBy=shop&sort=pieces",
        "groupBy=shop&sort=-sum.shop",
        "groupBy[x]=shop",
        "groupBy=" + ",".join(f"f{n}" for n in range(101)),
        "aggregate[sum]=" + ",".join(f"f{n}" for n in range(101)),
    ],
)
def test_what_cannot_be_summed_or_grouped_is_refused(sales: Table, query_string: str) -> None:
    answer = sales.read(query_string)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"]), answer.text


def test_a_group_and_an_aggregate_of_the_same_name_are_refused(admin: Client) -> None:
    odd = table(admin, field("count", "integer"), field("at", "date"), field("at_year", "integer"))
    assert odd.read("groupBy=count&aggregate[count]=*").codes == ["INVALID_QUERY"]
    assert odd.read("groupBy=at_year,year(at)").codes == ["INVALID_QUERY"]


def test_floats_beyond_their_range_are_reported_and_not_a_fault(admin: Client) -> None:
    wide = table(admin, field("f", "float"))
    wide.add({"f": 1.7e308}, {"f": 1.7e308})
    answer: Any = wide.read("aggregate[sum]=f")
    assert answer.status in (200, 400)
