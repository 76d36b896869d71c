"""No name and no value of a request ever becomes SQL."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from tests.client import Client
from tests.members import may, member
from tests.security.conftest import Shop

NASTY = (
    *(
        "'",
        '"',
        "''",
        '""',
        "\\",
        "\\'",
        ";",
        "--",
        "/*",
        "*/",
        "$1",
        "$2::text",
        "%s",
        "%(x)s",
        "%",
        "{0}",
        "{",
        "}",
    ),
    *(
        "id; DROP TABLE books",
        "id' OR '1'='1",
        'id" OR "1"="1',
        "id) OR (TRUE",
        "id\n--",
        'x"; DELETE FROM books; --',
    ),
    *(
        "(SELECT 1)",
        "pg_sleep(1)",
        "version()",
        "count(*)",
        "id::text",
        "t0.id",
        "t1.note",
        "r.c0",
        "n.*",
        "*",
        "**",
    ),
    *(
        ".",
        "..",
        ":",
        "a:b",
        ":a",
        "a:",
        "()",
        "f()",
        "(x)",
        "year()",
        "year(year(id))",
        "_and",
        "_eq",
        "$NOW",
        "$NOW(",
    ),
    *(
        "$CURRENT_USER.",
        "ctid",
        "xmin",
        "tableoid",
        "oid",
        "é",
        "😀",
        "\u202e",
        "\ud7ff",
        "I\u0307",
        "ﬀ",
        " ",
        "\t",
    ),
    *(
        "x" * 63,
        "x" * 64,
        "x" * 5000,
        "NULL",
        "true",
        "-1",
        "1e999",
        "[]",
        "{}",
        "[object Object]",
        "__proto__",
    ),
    *("\x01", "\x7f", "0", "00", "١"),
)
AS_A_NAME = (
    "fields={}",
    "fields={}.id",
    "fields=author.{}",
    "fields=count({})",
    "fields={}(id)",
    "fields=item:{}.id",
    "alias[{}]=id&fields={}",
    "alias[a]={}&fields=a",
    "filter[{}]=1",
    "filter[{}][id]=1",
    "filter[author][{}]=1",
    "filter[id][{}]=1",
    "filter[count({})]=1",
    "sort={}",
    "sort=author.{}",
    "groupBy={}",
    "aggregate[{}]=id",
    "aggregate[count]={}",
    "aggregate[count]=*&sort=-count.{}",
    "deep[{}][_limit]=1&fields=*.*",
    "deep[author][{}]=1&fields=author.id",
    "deep[author][_alias][{}]=name&fields=author.{}",
    "meta={}",
    "export={}",
)
AS_A_VALUE = (
    *(
        f"filter[title][_{name}]={{}}"
        for name in ("eq", "neq", "in", "nin", "contains", "icontains", "starts_with")
    ),
    *(f"filter[{name}][_gt]={{}}" for name in ("id", "weight", "published", "author")),
    "filter[title][_between]={}&filter[title][_between]=a",
    "search={}",
    "limit={}",
    "offset={}",
    "page={}",
    "deep[author][_limit]={}&fields=author.id",
    "filter={}",
    "deep={}",
    "aggregate={}",
)


@pytest.fixture(scope="module", params=[pytest.param("admin", marks=pytest.mark.release), "member"])
def caller(request: pytest.FixtureRequest, shop: Shop) -> Client:
    caller: Client = getattr(shop, request.param)
    return caller


@pytest.mark.quick(6)
@pytest.mark.parametrize("operand", [*AS_A_NAME, *AS_A_VALUE])
def test_a_nasty_name_or_value_is_no_part_of_the_statement(
    shop: Shop, caller: Client, operand: str
) -> None:
    for text in NASTY:
        answer = caller.get(f"/items/books?{operand.replace('{}', quote(text, safe=''))}")
        assert answer.status in (200, 400, 403), (text, answer.text)
        assert "syntax" not in answer.text, text
    assert shop.stage.value("SELECT count(*) FROM books") == 3


def test_a_nasty_collection_or_key_is_not_there(shop: Shop, caller: Client) -> None:
    for text in NASTY:
        if text in (".", "..", "..%2f"):
            continue
        name = quote(text, safe="")
        assert caller.get(f"/items/{name}").status in (403, 404), text
        assert caller.get(f"/items/{name}/1").status in (403, 404), text
        assert caller.get(f"/items/books/{name}").status == 404, text
    assert shop.stage.value("SELECT count(*) FROM books") == 3


@pytest.mark.release
def test_a_nasty_text_in_a_search_body_is_refused_or_found_nowhere(
    shop: Shop, caller: Client
) -> None:
    for text in (*NASTY, "\x00", "a\x00b", "\ud800"):
        for query in (
            {"filter": {text: {"_eq": text}}},
            {"filter": {"title": {"_in": [text, text]}}},
            {"filter": {"_and": [{"title": {text: text}}]}},
            {"fields": [text], "sort": [text]},
            {"fields": ["id", text]},
            {"fields": ["a"], "alias": {"a": text}},
            {"fields": [text], "alias": {text: "title"}},
            {"groupBy": [text], "aggregate": {text: [text]}},
            {"deep": {text: {"_filter": {text: text}}}},
            {"search": text},
            {"limit": text},
        ):
            answer = caller.send("SEARCH", "/items/books", {"query": query})
            assert answer.status in (200, 400, 403), (query, answer.text)
    assert shop.stage.value("SELECT count(*) FROM books") == 3


COLUMNS = (
    'quote"d',
    "{0}",
    "%s",
    "$1",
    "semi;--",
    "select",
    "é",
    "apo'strophe",
    "back\\slash",
    "t0",
    "n",
    "r",
    "c0",
    "v",
)
WEIRD = 'we"ird {0} %s $1;--'


def test_tables_and_columns_of_any_name_are_read_like_all_others(shop: Shop) -> None:
    """Somebody else named them; each is asked for in every place."""
    columns = ", ".join(f"{quoted(name)} text" for name in COLUMNS)
    values = ", ".join(f"$v${name}$v$" for name in COLUMNS)
    shop.stage.execute(
        f"CREATE TABLE {quoted(WEIRD)} (id integer PRIMARY KEY, {columns}, hidden text);"
        f"INSERT INTO {quoted(WEIRD)} VALUES (1, {values}, 'x')"
    )
    caller = member(
        shop.stage,
        may(WEIRD, "id"),
        may(WEIRD, *COLUMNS, permissions={COLUMNS[0]: {"_eq": COLUMNS[0]}}),
    )
    path = f"/items/{quote(WEIRD, safe='')}"
    assert caller.get(path).data == [{"id": 1, **{name: name for name in COLUMNS}}]
    for name in COLUMNS:
        for params in (
            {f"filter[{name}]": name, "fields": name},
            {"fields": name, "sort": f"-{name}"},
            {"groupBy": name},
        ):
            assert caller.get(f"{path}?{urlencode(params)}").data == [{name: name}], params
        assert caller.get(path, **{"aggregate[max]": name}).data == [{"max": {name: name}}]
        assert caller.get(path, **{"alias[a]": name, "fields": "a"}).data == [{"a": name}]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
