"""PostgreSQL's own errors reveal nothing of hidden data: whatever fails,
fails or not without regard to it.

Plans are generic here: then an operand is cast when the first row is compared, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cms.app import create_app
from cms.config import Config
from tests.client import Client
from tests.members import may, member
from tests.security.conftest import Shop
from tests.things import Stage

EXTREMES = """
    CREATE TABLE extremes (
        id integer PRIMARY KEY,
        shown boolean NOT NULL,
        narrow real,
        wide double precision,
        exact numeric,
        day date,
        moment timestamptz,
        list json,
        words text,
        place text,
        owner integer REFERENCES authors
    );
    INSERT INTO extremes VALUES
        (1, TRUE, 1, 1, 1, '2020-01-01', '2020-01-01', '[1]', 'one', '1', 1),
        (2, FALSE, '3e38', '1.7e308', 'NaN', 'infinity', '-infinity', '{"a": 1}', '%', 'no key', 1),
        (3, FALSE, 'Infinity', '1.7e308', 1e200, '-infinity', 'infinity', '"x"', E'\\\\',
        '99999999999999999999', 2),
        (4, FALSE, '3e38', '-1.7e308', 1e-200, '5874897-12-31', '294276-12-31', '[[[[]]]]', '''',
        '1', 1)
"""
QUERIES = (
    *(
        f"filter[narrow][{operator}]={n}"
        for operator in ("_eq", "_gt", "_in")
        for n in ("1e300", "1e-300", "3e38")
    ),
    "filter[narrow][_between]=-1e300,1e300",
    "filter[narrow][_nbetween]=1,1e39",
    "filter[_or][0][narrow]=1e39&filter[_or][1][id]=1",
    "filter[wide][_gt]=1.7e308",
    "filter[wide]=1e309",
    "filter[exact]=1e131071",
    "filter[exact]=1e131072",
    "filter[id][_gt]=9223372036854775807",
    "filter[id][_gt]=9223372036854775808",
    "filter[day]=9999-12-31",
    "filter[day]=10000-01-01",
    "filter[moment][_gt]=9999-12-31T23:59:59-23:00",
    "filter[moment][_gt]=$NOW(%2B9000 years)",
    *(f"filter[{part}(day)][_gt]=0" for part in ("year", "month", "week", "day", "weekday")),
    *(f"filter[{part}(moment)][_gt]=0" for part in ("year", "week", "hour", "second")),
    "filter[count(list)][_gt]=0",
    "filter[list][_empty]=true",
    "filter[words][_contains]=\\",
    "filter[words][_icontains]=%25",
    *(
        f"search={word}"
        for word in (
            "1e300",
            "1e39",
            "1e-300",
            "1e200000",
            "NaN",
            "Infinity",
            "\\",
            "%25",
            "9" * 20,
        )
    ),
    *(
        f"aggregate[{f}]={c}"
        for f in ("sum", "avg", "sumDistinct", "min", "max")
        for c in ("narrow", "wide", "exact")
    ),
    "groupBy=year(day)&aggregate[sum]=wide",
    "groupBy=words&sort=-sum.wide",
    "groupBy=narrow",
    "sort=-wide,year(moment)",
    "fields=year(day),second(moment),count(list)",
    "fields=owner.name,owner.extremes.wide",
    "fields=owner.extremes&deep[owner][extremes][_aggregate][sum]=wide",
    "filter[owner][extremes][narrow]=1e300",
    "filter[owner][extremes][_none][narrow]=1e39",
    "export=csv",
    "export=csv&aggregate[sum]=wide",
)


@pytest.fixture(scope="module")
def generic(shop: Shop, settings: Config) -> Iterator[Client]:
    dsn = make_conninfo(shop.stage.dsn, options="-c plan_cache_mode=force_generic_plan")
    client = Client(create_app(replace(settings, database_url=dsn, database_pool_size=3)))
    yield client
    client.close()


@pytest.mark.release
def test_an_error_is_the_same_whether_hidden_rows_and_fields_are_there_or_not(
    shop: Shop, generic: Client
) -> None:
    shop.stage.execute(EXTREMES)
    relation = {"collection": "extremes", "field": "owner", "related_collection": "authors"}
    assert (
        shop.admin.post("/relations", relation | {"meta": {"one_field": "extremes"}}).status == 200
    )
    stage = Stage(shop.admin, generic, shop.stage.dsn, shop.stage.side_door)
    by_row = member(
        stage,
        may("extremes", permissions={"owner": {"extremes": {"_some": {"wide": 1}}}, "shown": True}),
        may("authors"),
    )
    by_field = member(
        stage,
        may("extremes", "id", "owner"),
        may("extremes", permissions={"shown": True}),
        may("authors"),
    )
    before = {
        caller: [answer_of(caller, path) for path in QUERIES] for caller in (by_row, by_field)
    }
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        hidden = ", ".join(
            f"{name} = NULL"
            for name in ("narrow", "wide", "exact", "day", "moment", "list", "words")
        )
        connection.execute(f"UPDATE extremes SET {hidden} WHERE id > 1".encode())
        assert [answer_of(by_field, path) for path in QUERIES] == before[by_field]
        connection.execute("DELETE FROM extremes WHERE id > 1")
        assert [answer_of(by_row, path) for path in QUERIES] == before[by_row]


def answer_of(caller: Client, path: str) -> tuple[str, int, str]:
    answer = caller.get(f"/items/extremes?{path}")
    assert answer.status in (200, 400), (path, answer.text)
    return path, answer.status, answer.text


def test_what_a_cast_would_refuse_is_refused_before_any_row_is_compared(
    generic: Client, shop: Shop
) -> None:
    """An empty table answers like a full one."""
    shop.stage.execute(
        "CREATE TABLE hollow (id integer PRIMARY KEY, narrow real); "
        "CREATE TABLE full_one (LIKE hollow)"
    )
    shop.stage.execute(
        "ALTER TABLE full_one ADD PRIMARY KEY (id); INSERT INTO full_one VALUES (1, 1)"
    )
    stage = Stage(shop.admin, generic, shop.stage.dsn, shop.stage.side_door)
    caller = member(stage, may("hollow"), may("full_one", permissions={"id": {"_lt": 0}}))
    for operand in (
        "filter[narrow]=1e39",
        "filter[narrow][_in]=1,1e39",
        "filter[narrow][_lt]=1e-60",
        "search=1e39",
    ):
        answers = [caller.get(f"/items/{name}?{operand}") for name in ("hollow", "full_one")]
        assert {answer.status for answer in answers} == {200 if "search" in operand else 400}, (
            operand
        )
