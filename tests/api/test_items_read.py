"""GET /items/{collection} and /items/{collection}/{id}: fields, alias, meta."""

from __future__ import annotations

import pytest

from tests.client import Client, with_other_status
from tests.things import Stage, Table, field, table


@pytest.fixture(scope="module")
def books(admin: Client) -> Table:
    books = table(admin, field("title", "string"), field("pages", "integer"), field("out", "date"))
    books.add(
        {"title": "Emma", "pages": 474, "out": "1815-12-23"}, {"title": "Persuasion", "pages": 249}
    )
    return books


def test_a_list_holds_every_field_of_every_item(books: Table) -> None:
    assert books.get().body == {
        "data": [
            {"id": 1, "title": "Emma", "pages": 474, "out": "1815-12-23"},
            {"id": 2, "title": "Persuasion", "pages": 249, "out": None},
        ]
    }


def test_an_item_is_read_by_its_key(books: Table) -> None:
    assert books.api.get(f"{books.path}/2?fields=title").body == {"data": {"title": "Persuasion"}}
    assert books.api.get(f"{books.path}/1").data["title"] == "Emma"


@pytest.mark.parametrize(
    "key", ["3", "x", "1.5", "1e400", "-1", "99999999999999999999", "%00", "1'--", "%F0%9F%91%A9"]
)
def test_a_key_that_belongs_to_no_item_is_not_found(books: Table, key: str) -> None:
    answer = books.api.get(f"{books.path}/{key}")
    assert (answer.status, answer.codes) == (404, ["NOT_FOUND"])


def test_an_item_that_the_filter_leaves_out_is_not_found(books: Table) -> None:
    assert books.api.get(f"{books.path}/1?filter[pages][_gt]=400").status == 200
    assert books.api.get(f"{books.path}/2?filter[pages][_gt]=400").status == 404


@pytest.mark.parametrize(
    ("query_string", "keys"),
    [
        ("", ["id", "title", "pages", "out"]),
        ("fields=", ["id", "title", "pages", "out"]),
        ("fields=*", ["id", "title", "pages", "out"]),
        ("fields=title", ["title"]),
        ("fields=pages,title", ["pages", "title"]),
        ("fields= pages , title ", ["pages", "title"]),
        ("fields[]=pages&fields[]=title", ["pages", "title"]),
        ("fields=pages&fields=title,pages", ["pages", "title"]),
        ("fields=*,title", ["id", "title", "pages", "out"]),
        ("fields=year(out)", ["out_year"]),
        ("fields=*,year(out)", ["id", "title", "pages", "out", "out_year"]),
        ("fields=name&alias[name]=title", ["name"]),
        ("fields=*,name&alias[name]=title", ["id", "title", "pages", "out", "name"]),
        ('fields=y&alias={"y":"year(out)"}', ["y"]),
        ("fields=title&unknown=1&other[x]=2&deep=&alias=", ["title"]),
    ],
)
def test_fields_name_what_is_shown(books: Table, query_string: str, keys: list[str]) -> None:
    assert [list(item) for item in books.read(query_string).data] == [keys, keys]


@pytest.mark.parametrize(
    ("query_string", "reason"),
    [
        ("fields=nothing", "nothing"),
        ("fields=title,,pages", "fields"),
        ("fields=title.name", "title"),
        ("fields=count(*)", "*"),
        ("fields=year(title)", "year"),
        ("fields=upper(title)", "upper"),
        ("fields[a]=title", "fields"),
        ("fields=x&alias[x]=*", "*"),
        ("fields=x&alias[x]=nothing", "nothing"),
        ("fields=x&alias[x][y]=title", "alias"),
        ('fields=x&alias={"a b":"title"}', "alias"),
        ("alias=x", "alias"),
        ("fields=" + "title." * 5000 + "x", "fields"),
        ("fields=" + ",".join(f"f{n}" for n in range(5000)), "fields"),
        ("meta=total", "meta"),
        ("deep=5", "deep"),
    ],
)
def test_a_wrong_field_alias_or_meta_is_refused_and_reported(
    books: Table, query_string: str, reason: str
) -> None:
    answer = books.read(query_string)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])
    assert reason in answer.errors[0]["message"]


def test_counts_stand_beside_the_data(books: Table) -> None:
    assert books.read("meta=total_count,filter_count&filter[id]=1&limit=0").body == {
        "data": [],
        "meta": {"total_count": 2, "filter_count": 1},
    }
    assert books.read("meta=*&search=Emma&fields=id").body["meta"] == {
        "total_count": 2,
        "filter_count": 1,
        "next_cursor": None,
    }
    assert books.read("meta=filter_count&filter[id]=7").body == {
        "data": [],
        "meta": {"filter_count": 0},
    }
    assert books.read("meta[]=total_count").body["meta"] == {"total_count": 2}


def test_an_unknown_collection_is_not_found_by_an_administrator_and_forbidden_to_others(
    stage: Stage,
) -> None:
    for name in ("nowhere", "%00", "a'b", "pg_class", "😀"):
        answer = stage.admin.get(f"/items/{name}")
        assert (answer.status, answer.codes) == (404, ["NOT_FOUND"]), name
    books = table(stage.admin)
    answers = [
        stage.anonymous.get(path)
        for path in (books.path, "/items/nowhere", f"{books.path}/1?fields=x")
    ]
    assert with_other_status(answers, 403) == []
    assert len({answer.text for answer in answers}) == 1


def test_a_folder_has_no_items(admin: Client) -> None:
    assert admin.post("/collections", {"collection": "just_a_folder", "schema": None}).status == 200
    assert admin.get("/items/just_a_folder").codes == ["NOT_FOUND"]


NAMES = [
    'it"s',
    "100%",
    "a;b",
    "%s",
    "{0}",
    "$1",
    "sp ace",
    "ünï",
    "👩",
    "select",
    "back\\slash",
    "q'uote",
    "dot.ted",
]


def test_columns_and_tables_of_any_name_are_read(stage: Stage) -> None:
    columns = ", ".join('"' + name.replace('"', '""') + '" text' for name in NAMES)
    stage.execute(f'CREATE TABLE "ta ble%;" (id serial PRIMARY KEY, {columns})')
    odd = Table(stage.admin, "ta ble%;")
    path = "/items/ta%20ble%25%3B"
    item = odd.api.post(path, dict.fromkeys(NAMES, "x")).data
    assert item == {"id": 1, **dict.fromkeys(NAMES, "x")}
    assert odd.api.patch(f"{path}/1", {"100%": "y", 'it"s': "z"}).data == item | {
        "100%": "y",
        'it"s': "z",
    }
    assert len(odd.api.get(path, search="z", sort="-100%").data) == 1
    assert odd.api.search(
        path, {"filter": {'it"s': "z", "%s": {"_contains": "x"}, "{0}": "x", "$1": "x"}}
    ).data
    assert odd.api.search(path, {"groupBy": ["a;b"], "aggregate": {"min": "100%"}}).data == [
        {"a;b": "x", "min": {"100%": "y"}}
    ]
    assert odd.api.delete(path, [1]).status == 204


def test_a_table_without_a_key_has_an_order_of_its_own(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE no_key (a text, j json); INSERT INTO no_key VALUES ('b', '1'), ('a', '2')"
    )
    assert stage.admin.get("/items/no_key").data == [{"a": "a", "j": 2}, {"a": "b", "j": 1}]
    assert stage.admin.get("/items/no_key/a").status == 404
