"""Functions of dates and arrays in fields, filters, sorts and groups."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.things import Table, field, filled_things, table

things = filled_things(
    [
        field("day", "date"),
        field("hour", "time"),
        field("local", "datetime"),
        field("at", "timestamp"),
        field("list", "json"),
        field("tags", "csv"),
    ],
    [
        {
            "day": "2024-12-29",
            "hour": "23:59:59.9",
            "local": "2024-12-30T01:02:03.999",
            "at": "2024-12-30T23:30:00-02:00",
            "list": [1, [2, 3]],
            "tags": ["a", "b", "c"],
        },
        {"list": {"a": 1}, "tags": []},
        {"list": []},
    ],
)


@pytest.mark.parametrize(
    ("function", "day", "local", "at"),
    [
        ("year", 2024, 2024, 2024),
        ("month", 12, 12, 12),
        ("week", 52, 1, 1),
        ("day", 29, 30, 31),
        ("weekday", 0, 1, 2),
        ("hour", None, 1, 1),
        ("minute", None, 2, 30),
        ("second", None, 3, 0),
    ],
)
def test_the_parts_of_a_moment_are_those_in_utc(
    things: Table, function: str, day: int | None, local: int, at: int
) -> None:
    fields = [
        f"{function}({name})" for name in ("day", "local", "at") if name != "day" or day is not None
    ]
    item = things.get(fields=",".join(fields), limit=1).data[0]
    expected = {f"day_{function}": day, f"local_{function}": local, f"at_{function}": at}
    assert item == {key: value for key, value in expected.items() if value is not None}
    if day is None:
        assert things.get(fields=f"{function}(day)").codes == ["INVALID_QUERY"]


def test_the_parts_of_a_time_are_cut_and_not_rounded(things: Table) -> None:
    item = things.get(fields="hour(hour),minute(hour),second(hour)", limit=1).data[0]
    assert item == {"hour_hour": 23, "hour_minute": 59, "hour_second": 59}


def test_count_is_the_length_of_an_array_and_null_for_what_is_none(things: Table) -> None:
    assert things.column("list_count", "fields=count(list)") == [2, None, 0]
    assert things.column("tags_count", "fields=count(tags)") == [3, 0, None]


def test_functions_filter_sort_and_group(things: Table) -> None:
    assert things.column("id", "filter[year(day)]=2024") == [1]
    assert things.column("id", "filter[year(day)][_in]=2023,2025") == []
    assert things.column("id", "filter[count(list)][_gte]=0&sort=-count(list)") == [1, 3]
    assert things.column("id", "filter[count(tags)][_null]=true") == [3]
    assert things.read("groupBy=count(tags)&aggregate[count]=*").data == [
        {"tags_count": 0, "count": 1},
        {"tags_count": 3, "count": 1},
        {"tags_count": None, "count": 1},
    ]


def test_a_function_can_have_another_name(things: Table) -> None:
    assert things.column("y", "fields=y&alias[y]=year(day)&limit=1") == [2024]


@pytest.mark.parametrize(
    "query_string",
    [
        "fields=hour(day)",
        "fields=year(hour)",
        "fields=count(day)",
        "fields=year(year(day))",
        "filter[upper(tags)]=A",
        "filter[year(day)]=x",
        "filter[year(day)][_contains]=2",
        "sort=sum(id)",
        "groupBy=count(id)",
    ],
)
def test_a_function_that_does_not_fit_is_refused(things: Table, query_string: str) -> None:
    answer = things.read(query_string)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"]), answer.text


def test_nothing_can_be_learned_of_a_secret_through_a_function(admin: Client) -> None:
    safe = table(admin, field("born", "date", special="conceal"))
    safe.add({"born": "2000-01-01"})
    for query_string in (
        "fields=year(born)",
        "filter[year(born)]=2000",
        "sort=year(born)",
        "groupBy=year(born)",
    ):
        assert safe.read(query_string).codes == ["INVALID_QUERY"], query_string
