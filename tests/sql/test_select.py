"""Compilation as a table: query string, exact SQL, exact parameters; every row is also executed."""

from __future__ import annotations

import pytest

from cms.query.language.parse import PageSizes, parse_query_string
from tests.sql.compiler import Compiler, assert_one_statement
from tests.things import Stage

TABLES = """
CREATE TABLE books (
    id integer PRIMARY KEY, title varchar(40), price numeric, weight double precision, out
    timestamptz, tags json,
    "a""b%" text
);
INSERT INTO books (id, title, price, out, tags) VALUES (1, 'Emma', 9.50, '1815-12-23', '["a"]');
"""
ALL = (
    't0."id" AS c0, t0."title"::text AS c1, to_json(t0."price") AS c2, '
    'to_json(t0."weight") AS c3, '
    'system_timestamp_text(t0."out") AS c4, '
    't0."tags"::json AS c5, t0."a""b%"::text AS c6'
)
ID = 't0."id" AS c0'
ORDER = 'ORDER BY t0."id" LIMIT 100'
YEAR = (
    'CASE WHEN isfinite(t0."out") THEN EXTRACT(YEAR FROM t0."out" AT TIME ZONE '
    "'UTC')::integer END"
)


def fresh(columns: int, inner: str, counts: str = "") -> str:
    """The frame of every read: outputs, counters of freshness, and whether there is a row."""
    outputs = ", ".join(f"r.c{n}" for n in range(columns))
    return (
        f"SELECT {outputs}, v.structure, v.access, v.flows, r.row_exists{counts} "
        f"FROM system_version AS v LEFT JOIN LATERAL "
        f"(SELECT TRUE AS row_exists, {inner}) AS r ON TRUE"
    )


def ids(where: str = "", order: str = ORDER) -> str:
    """The read of the keys under a condition."""
    return fresh(1, f'{ID} FROM "books" AS t0{where} {order}')


def where(condition: str) -> str:
    return ids(f" WHERE {condition}")


def page(inner: str, window: str) -> str:
    """The read of a page of keys that is cut out before its outputs are computed."""
    return fresh(
        1,
        f'{ID} FROM (SELECT t0.* FROM (SELECT t0.* FROM "books" AS t0 ORDER BY t0."id"{inner}) AS '
        f"t0 {window}) AS t0",
    )


def grouped(outputs: str, tail: str, columns: int = 1) -> str:
    return fresh(columns, f'{outputs} FROM "books" AS t0{tail} LIMIT 100')


SEARCH = (
    "system_fold_unindexed({column}) LIKE '%' || "
    "regexp_replace(system_fold(${n}::text), '([\\\\%_])', '\\\\\\1', 'g') || '%'"
)
# (query string, SQL, parameters)
READS: list[tuple[str, str, list[object]]] = [
    ("", fresh(7, f'{ALL} FROM "books" AS t0 {ORDER}'), []),
    ("fields=id", ids(), []),
    ("fields=id&limit=-1", ids(order='ORDER BY t0."id"'), []),
    ("fields=id&limit=-1&offset=3", page("", "LIMIT $1::bigint OFFSET $2::bigint"), [None, 3]),
    ("fields=id&limit=25", ids(order='ORDER BY t0."id" LIMIT 25'), []),
    ("fields=id&limit=30", page(" LIMIT 50", "LIMIT $1::bigint"), [30]),
    (
        "fields=id&limit=20&page=3",
        page(" LIMIT 100", "LIMIT $1::bigint OFFSET $2::bigint"),
        [20, 40],
    ),
    (
        "fields=id&limit=20&page=11",
        fresh(
            1,
            f'{ID} FROM (SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM "books" AS t0 '
            'ORDER BY t0."id" LIMIT 250) AS t0 LIMIT $1::bigint OFFSET $2::bigint) AS t0 LIMIT 20) '
            "AS t0",
        ),
        [20, 200],
    ),
    ("fields=year(out)", fresh(1, f'{YEAR} AS c0 FROM "books" AS t0 {ORDER}'), []),
    ("fields=id&filter[id]=5", where('t0."id" = $1::bigint'), ["5"]),
    ("fields=id&filter[id][_neq]=5", where('t0."id" <> $1::bigint'), ["5"]),
    ("fields=id&filter[id][_in]=1,2", where('t0."id" = ANY ($1::integer[])'), [["1", "2"]]),
    ("fields=id&filter[id][_nin]=", where('(t0."id")::bigint <> ALL ($1::bigint[])'), [[]]),
    (
        "fields=id&filter[id][_between]=1,9",
        where('t0."id" BETWEEN $1::bigint AND $2::bigint'),
        ["1", "9"],
    ),
    ("fields=id&filter[title]=x'y", where('t0."title" = $1::text'), ["x'y"]),
    ("fields=id&filter[title][_ieq]=É", where('lower(t0."title") = lower($1::text)'), ["É"]),
    ("fields=id&filter[title][_contains]=5%25_", where('t0."title" LIKE $1::text'), ["%5\\%\\_%"]),
    (
        "fields=id&filter[title][_nistarts_with]=\\",
        where('t0."title" NOT ILIKE $1::text'),
        ["\\\\%"],
    ),
    ("fields=id&filter[title][_ends_with]=a", where('t0."title" LIKE $1::text'), ["%a"]),
    ("fields=id&filter[title][_null]=true", where('t0."title" IS NULL'), []),
    ("fields=id&filter[title][_null]=false", where('t0."title" IS NOT NULL'), []),
    ("fields=id&filter[title][_empty]", where('(t0."title" IS NULL OR t0."title" = \'\')'), []),
    ("fields=id&filter[price][_gt]=1.50", where('t0."price" > $1::numeric'), ["1.50"]),
    ("fields=id&filter[weight][_lt]=1e3", where('t0."weight" < $1::double precision'), ["1E+3"]),
    (
        "fields=id&filter[out][_gte]=2024-01-01T00:00:00%2B02:00",
        where('t0."out" >= $1::timestamptz'),
        ["2023-12-31T22:00:00+00:00"],
    ),
    ("fields=id&filter[year(out)]=1815", where(f"{YEAR} = $1::bigint"), ["1815"]),
    (
        "fields=id&filter[count(tags)][_gt]=0",
        where(
            "CASE WHEN json_typeof(t0.\"tags\"::json) = 'array' THEN "
            'json_array_length(t0."tags"::json) END'
            " > $1::bigint"
        ),
        ["0"],
    ),
    ('fields=id&filter[a"b%25]=1', where('t0."a""b%" = $1::text'), ["1"]),
    ("fields=id&filter={}", ids(), []),
    ('fields=id&filter={"_and":[]}', ids(), []),
    ('fields=id&filter={"_or":[]}', where("FALSE"), []),
    (
        "fields=id&filter[id][_gt]=1&filter[title]=a",
        where('(t0."id" > $1::bigint AND t0."title" = $2::text)'),
        ["1", "a"],
    ),
    (
        "fields=id&filter[_or][0][id]=1&filter[_or][1][_and][0][title]=a"
        "&filter[_or][1][_and][1][id]=2",
        where('(t0."id" = $1::bigint OR (t0."title" = $2::text AND t0."id" = $3::bigint))'),
        ["1", "a", "2"],
    ),
    (
        "fields=id&search=Emma",
        where(
            '(TRUE AND (t0."id" = $1::bigint OR {title} OR t0."price" = $3::numeric'
            ' OR t0."weight" = $4::double precision OR {odd}))'.format(
                title=SEARCH.format(column='t0."title"', n=2),
                odd=SEARCH.format(column='t0."a""b%"', n=2),
            )
        ),
        [None, "Emma", None, None],
    ),
    (
        "fields=id&sort=-title,year(out)",
        ids(order='ORDER BY t0."title" DESC, ' + YEAR + ', t0."id" LIMIT 100'),
        [],
    ),
    (
        "fields=id&meta=*&filter[id]=1",
        fresh(
            1,
            f'{ID} FROM "books" AS t0 WHERE t0."id" = $1::bigint {ORDER}',
            ', (SELECT count(*) FROM "books" AS t0), (SELECT count(*) FROM "books" AS t0 WHERE '
            't0."id" = $1::bigint)',
        ),
        ["1"],
    ),
    ("aggregate[count]=*", grouped("count(*) AS c0", ""), []),
    (
        "aggregate[sum]=price&aggregate[max]=out",
        grouped(
            'to_json(trim_scale(sum(t0."price"))) AS c0, '
            'system_timestamp_text(max(t0."out")) AS c1',
            "",
            2,
        ),
        [],
    ),
    (
        "aggregate[avg]=id&groupBy=year(out)&sort=-count",
        grouped(
            f'{YEAR} AS c0, to_json(trim_scale(avg(t0."id")::numeric)) AS c1',
            f" GROUP BY {YEAR} ORDER BY count(*) DESC, {YEAR}",
            2,
        ),
        [],
    ),
]


@pytest.fixture(scope="module", autouse=True)
def tables(stage: Stage) -> None:
    stage.execute(TABLES)


@pytest.mark.parametrize(
    ("query_string", "text", "values"), READS, ids=[row[0] or "-" for row in READS]
)
def test_a_query_compiles_to_one_statement_and_runs(
    compiler: Compiler, query_string: str, text: str, values: list[object]
) -> None:
    statement, parameters = compiler.compile("books", query_string)
    assert statement.text == text
    assert parameters == values
    assert len(compiler.run(statement, parameters)) <= 1


@pytest.mark.parametrize("query_string", [row[0] for row in READS])
def test_a_read_is_one_statement(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, query_string: str
) -> None:
    assert_one_statement(stage, monkeypatch, f"/items/books?{query_string}&meta=*")


def test_requests_that_differ_in_literals_only_share_their_statement(compiler: Compiler) -> None:
    pairs = [
        ("filter[id]=1&limit=7&offset=1&search=a", "filter[id]=2&limit=6&offset=4&search=b"),
        ("filter[id][_in]=1", "filter[id][_in]=1,2,3"),
        ("filter[title][_contains]=a", 'filter={"title":{"_contains":"%"}}'),
    ]
    for first, second in pairs:
        assert compiler.compile("books", first)[0].text == compiler.compile("books", second)[0].text
        assert (
            parse_query_string(first, PageSizes()).query
            == parse_query_string(second, PageSizes()).query
        )
