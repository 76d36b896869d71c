"""Values inside of JSON fields: filtered, sorted, shown and grouped by their paths."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, Table, field, table

METAS: list[Any] = [
    {"price": 5, "kind": "book", "tags": ["red", "new"], "size": {"cm": 10}},
    {"price": 12.5, "kind": "book", "tags": ["blue"], "size": {"cm": 20}},
    {"price": "5", "kind": "film", "tags": [], "is_new": True},
    {"price": None, "kind": "Film", "is_new": False, "0": "zero"},
    {"kind": ["book"], "price": {"net": 5}},
    {"price": 1e2, "limit": 7, "sort": "b", "filter": {"_eq": 1}, "null": "x"},
    [{"price": 3}, 8],
    "text",
    None,
]
"""The JSON of the items 1, 2, 3 …"""


@pytest.fixture(scope="module")
def authors(admin: Client) -> Table:
    authors = table(admin, field("name", "string"), field("meta", "json"))
    authors.add({"name": "Ann", "meta": {"born": 1950}}, {"name": "Bo", "meta": {"born": 1975}})
    return authors


@pytest.fixture(scope="module")
def articles(admin: Client, authors: Table) -> Table:
    articles = table(
        admin, field("meta", "json"), field("title", "string"), field("author", "integer")
    )
    relation = {
        "collection": articles.name,
        "field": "author",
        "related_collection": authors.name,
        "meta": {"one_field": "things"},
    }
    assert admin.post("/relations", relation).status == 200
    rows = []
    for number, meta in enumerate(METAS, start=1):
        rows.append({"meta": meta, "title": f"t{number}", "author": number % 2 + 1})
    articles.add(*rows)
    return articles


def ids(things: Table, query_string: str) -> list[int]:
    return things.column("id", f"fields=id&sort=id&{query_string}")


def by_body(things: Table, filter: object) -> list[int]:
    query = {"filter": filter, "fields": ["id"], "sort": ["id"]}
    return [item["id"] for item in things.api.search(things.path, query).data]


def assert_refused(answer: Answer, part: str) -> None:
    assert (answer.status, set(answer.codes)) == (400, {"INVALID_QUERY"}), answer.text
    assert part in answer.text


@pytest.mark.parametrize(
    ("query_string", "expected"),
    [
        ("filter[meta.price][_eq]=5", [1]),
        ("filter[meta.price]=5", [1]),
        ("filter[meta.price][_eq]=5.0", [1]),
        ('filter[meta.price][_eq]="5"', [3]),
        ("filter[meta.price][_eq]=100", [6]),
        ("filter[meta.kind][_eq]=book", [1, 2]),
        ("filter[meta.is_new][_eq]=true", [3]),
        ("filter[meta.is_new][_eq]=false", [4]),
        ("filter[meta.is_new][_lt]=true", [4]),
        ("filter[meta.price][_neq]=5", [2, 6]),
        ("filter[meta.kind][_neq]=book", [3, 4]),
        ("filter[meta.price][_gt]=5", [2, 6]),
        ("filter[meta.price][_gte]=5", [1, 2, 6]),
        ("filter[meta.price][_lt]=12.5", [1]),
        ("filter[meta.price][_lte]=12.5", [1, 2]),
        ("filter[meta.kind][_gt]=book", [3]),
        ("filter[meta.kind][_lt]=c", [1, 2, 4]),
        ("filter[meta.price][_in]=5,100,red", [1, 6]),
        ("filter[meta.price][_nin]=5,100", [2]),
        ('filter[meta.price][_nin]=5,"6"', [2, 3, 6]),
        ("filter[meta.price][_in]=", []),
        ("filter[meta.price][_nin]=", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("filter[meta.price][_between]=5,13", [1, 2]),
        ("filter[meta.price][_between]=5,red", []),
        ("filter[meta.price][_nbetween]=5,13", [6]),
        ("filter[meta.price][_null]=true", [4, 7, 8, 9]),
        ("filter[meta.price][_nnull]=true", [1, 2, 3, 5, 6]),
        ("filter[meta.price][_eq]=null", [4, 7, 8, 9]),
        ("filter[meta.price][_neq]=null", [1, 2, 3, 5, 6]),
        ("filter[meta.tags][_empty]=true", [3, 4, 5, 6, 7, 8, 9]),
        ("filter[meta.tags][_nempty]=true", [1, 2]),
        ("filter[meta.kind][_contains]=oo", [1, 2]),
        ("filter[meta.kind][_contains]=book", [1, 2, 5]),
        ("filter[meta.kind][_ncontains]=oo", [3, 4, 5]),
        ("filter[meta.tags][_contains]=red", [1]),
        ("filter[meta.tags][_ncontains]=red", [2, 3]),
        ("filter[meta.kind][_icontains]=FIL", [3, 4]),
        ("filter[meta.kind][_starts_with]=f", [3]),
        ("filter[meta.kind][_istarts_with]=f", [3, 4]),
        ("filter[meta.kind][_ends_with]=m", [3, 4]),
        ("filter[meta.kind][_ieq]=FILM", [3, 4]),
        ("filter[meta.kind][_nieq]=FILM", [1, 2]),
        ("filter[meta.size.cm][_gt]=10", [2]),
        ("filter[meta.tags.0][_eq]=red", [1]),
        ("filter[meta.tags.-1][_eq]=new", [1]),
        ("filter[meta.tags.1][_null]=false", [1]),
        ("filter[meta.tags.99999999999999999999][_nnull]=true", []),
        ("filter[meta.0][_eq]=zero", [4]),
        ("filter[meta.0.price][_eq]=3", [7]),
        ("filter[meta.1][_eq]=8", [7]),
        ("filter[meta.limit]=7&limit=5", [6]),
        ("filter[meta.filter._eq]=1", [6]),
        ("filter[meta.null]=x", [6]),
        ("filter[_or][0][meta.price][_eq]=5&filter[_or][1][meta.kind][_eq]=film", [1, 3]),
        ("filter[author][meta.born][_lt]=1970&filter[meta.price][_gt]=0", [2, 6]),
        ("filter[author.meta.born][_lt]=1970&filter[meta.price][_gt]=0", [2, 6]),
    ],
)
def test_filters_by_a_path(articles: Table, query_string: str, expected: list[int]) -> None:
    assert ids(articles, query_string) == expected


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"meta.price": {"_eq": 5}}, [1]),
        ({"meta.price": {"_eq": "5"}}, [3]),
        ({"meta.price": "5"}, [3]),
        ({"meta.price": {"_in": ["5", 12.5, True]}}, [2, 3]),
        ({"meta.price": {"_nin": []}}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"meta.price": None}, [4, 7, 8, 9]),
        ({"meta.is_new": True}, [3]),
        ({"meta.is_new": "true"}, []),
        ({"meta.tags": {"_contains": "red"}}, [1]),
    ],
)
def test_values_of_a_body_keep_their_types(
    articles: Table, filter: object, expected: list[int]
) -> None:
    assert by_body(articles, filter) == expected
    assert ids(articles, f"filter={quote(json.dumps(filter))}") == expected


@pytest.mark.parametrize(
    ("query_string", "part"),
    [
        ("filter[meta.price][_eq]=[5]", "it must be a text, a number, true or false"),
        ("filter[meta.price][_gt]=null", "it must be a text, a number, true or false"),
        ("filter[meta.price][_eq]=$NOW", "it must be a text, a number, true or false"),
        ("filter[meta.price][_intersects]={}", "does not fit"),
        ("filter[meta.price][_eq]=$CURRENT_USER.email", "cannot be compared"),
        ("filter[author][_eq]=$CURRENT_USER.tags.0", "cannot be compared"),
        ("filter[title][_eq]=$CURRENT_USER.tags.0", "cannot be compared"),
        ("filter[meta..price][_eq]=5", "each step of a path"),
        (f"filter[meta.{'a.' * 30}b][_eq]=5", "at most 20 steps"),
        ("filter[count(meta.tags)][_eq]=5", "functions take a field"),
        ("filter[title.price][_eq]=5", "leads to no other collection"),
        ("sort=title.price", "leads to no other collection"),
        ("sort=meta.", "each step of a path"),
        ("fields=title.price", "leads to no other collection"),
        ("fields=meta.price&deep[meta][_filter][a]=5", "says nothing"),
        ("deep[meta][_limit]=1", "leads to no other collection"),
        ("fields=meta.*.price", "each step of a path"),
        ("groupBy=title.price", "does not exist"),
        ("aggregate[sum]=title.price", "does not exist"),
        ("aggregate[sum]=meta.a_b,meta.a.b", "would both be called"),
        ("groupBy=author.meta.born", "does not exist"),
        ("fields=" + ",".join(f"meta.a{n}" for n in range(101)), "more than 100 paths"),
    ],
)
def test_what_no_path_can_be_is_refused(articles: Table, query_string: str, part: str) -> None:
    assert_refused(articles.read(query_string), part)


def test_a_name_of_very_many_dots_is_refused_at_once(articles: Table) -> None:
    name = "meta" + ".a" * 100_000
    for query in ({"filter": {name: 1}}, {"sort": [name]}, {"groupBy": [name]}):
        assert_refused(articles.api.search(articles.path, query), " steps")


def test_a_path_may_have_more_steps_than_relations(articles: Table) -> None:
    path = "meta" + ".a" * 20
    query = f"filter[{path}][_null]=true&sort={path}&fields={path}&limit=1"
    assert articles.read(query).status == 200


def test_a_number_that_is_too_long_is_refused(articles: Table) -> None:
    answer = articles.read("filter[meta.price][_eq]=1e5000")
    assert (answer.status, answer.codes) == (400, ["VALUE_OUT_OF_RANGE"])


def test_nothing_of_a_path_is_sql(articles: Table) -> None:
    for step in ("a'b", 'a"b', "a}b", "a{b", "a\\b", "a)b", "$1", "%s", "ä", "\U0001f4d6", "NULL"):
        item = articles.add({"meta": {step: "here"}})[0]
        filter = {f"meta.{step}": {"_eq": "here"}}
        assert by_body(articles, filter) == [item["id"]], step
        answer = articles.api.search(
            f"{articles.path}",
            {"filter": filter, "fields": [f"meta.{step}"], "sort": [f"meta.{step}"]},
        )
        assert answer.data == [{"meta": {step: "here"}}], step
        assert articles.api.delete(f"{articles.path}/{item['id']}").status == 204


def test_sorting_by_a_path_puts_texts_before_numbers_and_missing_values_last(
    articles: Table,
) -> None:
    assert articles.column("id", "sort=meta.price,id&fields=id") == [3, 1, 2, 6, 4, 5, 7, 8, 9]
    assert articles.column("id", "sort=-meta.price,id&fields=id") == [4, 5, 7, 8, 9, 6, 2, 1, 3]
    assert articles.column("id", "sort=author.meta.born,-id&fields=id&limit=2") == [8, 6]


def test_pages_with_a_cursor_follow_a_path(articles: Table) -> None:
    for sort in ("meta.price", "-meta.price", "meta.kind,-meta.price"):
        expected = articles.column("id", f"fields=id&sort={sort}")
        query = f"fields=id&limit=2&sort={sort}"
        answer = articles.read(f"{query}&meta=next_cursor")
        ids = [item["id"] for item in answer.data]
        while token := answer.body["meta"]["next_cursor"]:
            answer = articles.read(f"{query}&page[after]={token}")
            ids += [item["id"] for item in answer.data]
        assert ids == expected, sort


def test_a_cursor_of_one_path_is_none_of_another(articles: Table) -> None:
    token = articles.read("limit=2&sort=meta.price&meta=next_cursor").body["meta"]["next_cursor"]
    assert_refused(articles.read(f"limit=2&sort=meta.kind&page[after]={token}"), "page[after]")


def test_paths_are_shown_nested_and_null_where_they_are_missing(articles: Table) -> None:
    data = articles.read("sort=id&fields=id,meta.price,meta.size.cm,meta.tags.0&limit=3").data
    assert data == [
        {"id": 1, "meta": {"price": 5, "size": {"cm": 10}, "tags": {"0": "red"}}},
        {"id": 2, "meta": {"price": 12.5, "size": {"cm": 20}, "tags": {"0": "blue"}}},
        {"id": 3, "meta": {"price": "5", "size": {"cm": None}, "tags": {"0": None}}},
    ]
    last = articles.api.get(f"{articles.path}/9", fields="meta.price").data
    assert last == {"meta": {"price": None}}
    assert articles.api.get(f"{articles.path}/1", fields="meta.*").data == {"meta": METAS[0]}
    assert articles.api.get(f"{articles.path}/5", fields="meta.kind").data == {
        "meta": {"kind": ["book"]}
    }


def test_a_path_can_be_shown_behind_relations_and_under_another_name(
    articles: Table, authors: Table
) -> None:
    query = "fields=author.meta.born,price&alias[price]=meta.price&limit=1&sort=id"
    assert articles.read(query).data == [{"author": {"meta": {"born": 1975}}, "price": 5}]
    author = articles.api.get(
        f"{authors.path}/1",
        fields="things.meta.price",
        **{"deep[things][_filter][meta.price][_gt]": 10, "deep[things][_sort]": "-meta.price"},
    )
    assert author.data == {"things": [{"meta": {"price": 100.0}}, {"meta": {"price": 12.5}}]}


def test_groups_and_aggregates_of_a_path(articles: Table) -> None:
    groups = articles.read("groupBy=meta.kind&aggregate[count]=*&sort=meta.kind").data
    assert groups == [
        {"meta_kind": "Film", "count": 1},
        {"meta_kind": "book", "count": 2},
        {"meta_kind": "film", "count": 1},
        {"meta_kind": None, "count": 5},
    ]
    aggregates = "&".join(
        f"aggregate[{name}]=meta.price"
        for name in ("count", "countDistinct", "sum", "sumDistinct", "avg", "min", "max")
    )
    assert articles.read(aggregates).data == [
        {
            "count": {"meta_price": 5},
            "countDistinct": {"meta_price": 4},
            "sum": {"meta_price": 117.5},
            "sumDistinct": {"meta_price": 117.5},
            "avg": {"meta_price": 39.166666666666664},
            "min": {"meta_price": 5},
            "max": {"meta_price": 100},
        }
    ]
    assert articles.read("aggregate[min]=meta.kind").data == [{"min": {"meta_kind": "Film"}}]
    sizes = articles.read(
        "groupBy=meta.size.cm&aggregate[max]=meta.price&sort=-max.meta.price"
    ).data
    assert [group["meta_size_cm"] for group in sizes] == [None, 20, 10]


def test_groups_under_one_key_are_refused(articles: Table) -> None:
    assert_refused(articles.read("groupBy=meta.a_b,meta.a.b"), "would both be called")


def test_exports_have_the_parts_that_are_shown(articles: Table) -> None:
    answer = articles.read(
        "export=csv&fields=id,meta.price,price&alias[price]=meta.price&limit=3&sort=id"
    )
    assert answer.text.splitlines() == [
        "id,meta,price",
        '1,"{""price"":5}",5',
        '2,"{""price"":12.5}",12.5',
        '3,"{""price"":""5""}","""5"""',
    ]


def test_written_items_are_answered_with_parts(articles: Table) -> None:
    created = articles.api.post(
        f"{articles.path}?fields=id,meta.price", {"meta": {"price": 1, "a": 2}}
    )
    assert created.data["meta"] == {"price": 1}
    key = created.data["id"]
    changed = articles.api.patch(
        f"{articles.path}?fields=meta.price",
        {"query": {"filter": {"meta.a": {"_eq": 2}}}, "data": {"meta": {"price": 3}}},
    )
    assert changed.data == [{"meta": {"price": 3}}]
    assert articles.api.delete(f"{articles.path}/{key}").status == 204


# Rights


def test_what_is_hidden_in_a_row_is_null_there_by_any_path(stage: Stage, articles: Table) -> None:
    reader = member(
        stage,
        may(articles.name, "id", "title"),
        may(articles.name, "meta", permissions={"title": {"_in": ["t1", "t3"]}}),
    )
    seen = Table(reader, articles.name)
    assert ids(seen, "filter[meta.price][_nnull]=true") == [1, 3]
    assert ids(seen, "filter[meta.price][_gt]=5") == []
    assert seen.column("id", "sort=meta.price,id&limit=3&fields=id") == [3, 1, 2]
    assert seen.read("fields=id,meta.price&sort=id&limit=2").data == [
        {"id": 1, "meta": {"price": 5}},
        {"id": 2, "meta": {"price": None}},
    ]
    assert seen.read("aggregate[sum]=meta.price").data == [{"sum": {"meta_price": 5}}]
    groups = seen.read("groupBy=meta.kind&aggregate[count]=*&sort=meta.kind").data
    assert [group["meta_kind"] for group in groups] == ["book", "film", None]


def test_a_path_into_a_hidden_field_is_refused_as_one_into_a_missing_field(
    stage: Stage, articles: Table
) -> None:
    reader = Table(member(stage, may(articles.name, "id", "title")), articles.name)
    for query in ("filter[{}]=5", "sort={}", "fields={}", "groupBy={}", "aggregate[sum]={}"):
        answers = [
            reader.read(query.format(name)) for name in ("meta.price", "none.price", "title.price")
        ]
        assert {answer.status for answer in answers} == {403}, query
        assert len({answer.text for answer in answers}) == 1, query


def test_rules_of_permissions_name_paths(stage: Stage, articles: Table) -> None:
    client = member(
        stage,
        may(articles.name, permissions={"meta.kind": {"_eq": "book"}}),
        may(articles.name, action="update", permissions={"meta.price": {"_gt": 5}}),
    )
    seen = Table(client, articles.name)
    assert ids(seen, "") == [1, 2]
    assert client.patch(f"{articles.path}/1", {"title": "x"}).status == 403
    assert client.patch(f"{articles.path}/2", {"title": "t2"}).status == 200


def test_a_rule_about_the_caller_finds_nothing_for_nobody(
    stage: Stage, admin: Client, articles: Table
) -> None:
    rule = {"meta.price": {"_eq": "$CURRENT_USER"}}
    permission = {
        "role": None,
        "collection": articles.name,
        "action": "read",
        "fields": ["id"],
        "permissions": rule,
    }
    created = admin.post("/permissions", permission)
    assert created.status == 200, created
    assert stage.anonymous.get(articles.path).data == []
    assert admin.delete(f"/permissions/{created.data['id']}").status == 204


def test_a_validation_names_paths(admin: Client) -> None:
    things = table(
        admin, {**field("meta", "json"), "meta": {"validation": {"meta.price": {"_gt": 5}}}}
    )
    assert things.api.post(things.path, {"meta": {"price": 6}}).status == 200
    refused: list[Any] = [{"price": 5}, {"price": "6"}, {"price": [6]}, {}, [], None]
    for meta in refused:
        answer = things.api.post(things.path, {"meta": meta})
        assert (answer.status, answer.codes) == (422, ["FAILED_VALIDATION"]), answer
    assert answer.errors[0]["path"] == ["meta", "price"]


# Tables of other programs


def test_jsonb_arrays_and_texts_have_paths(stage: Stage, admin: Client) -> None:
    others = table(admin, field("a", "json"), field("t", "text", special="cast-json"))
    stage.execute(
        f'ALTER TABLE "{others.name}" ADD b jsonb, ADD list text[];'
        f'INSERT INTO "{others.name}" (a, b, t, list) VALUES '
        """('{"n": 1}', '{"n": 1, "s": "x"}', '{"n": 1}', '{x,y}'), """
        """(NULL, '{"n": null}', NULL, NULL)"""
    )
    assert ids(others, "filter[b.n][_eq]=1") == [1]
    assert ids(others, "filter[b.s][_contains]=x") == [1]
    assert ids(others, "filter[b.n][_null]=true") == [2]
    assert ids(others, "filter[t.n][_lt]=2") == [1]
    assert ids(others, "filter[list.1]=y") == [1]
    assert others.read("fields=b.n,t.n,list.0&sort=b.n").data == [
        {"b": {"n": 1}, "t": {"n": 1}, "list": {"0": "x"}},
        {"b": {"n": None}, "t": {"n": None}, "list": {"0": None}},
    ]


def test_what_postgresql_cannot_read_or_compare_is_null(stage: Stage, admin: Client) -> None:
    others = table(admin, field("j", "json"))
    documents = [
        r'{"a": 1, "x": "\u0000"}',
        r'{"a": 1, "x": "\ud800"}',
        r'{"a": 1, "x": "\\u0000 \ud83d\ude00"}',
        '{"a": 1e99999}',
        '{"a": ' + "9" * 200_000 + "}",
        '{"a": 1, "a": 2}',
    ]
    for document in documents:
        stage.execute(f"""INSERT INTO "{others.name}" (j) VALUES ($json${document}$json$)""")
    assert ids(others, "filter[j.a][_gte]=1") == [3, 6]
    assert ids(others, "filter[j.a][_null]=true") == [1, 2]
    assert others.column("id", "sort=j.a,id&fields=id") == [3, 6, 1, 2, 4, 5]
    assert others.read("aggregate[sum]=j.a").data == [{"sum": {"j_a": 3}}]
    assert others.read("fields=j.a&filter[id]=1").data == [{"j": {"a": None}}]


def test_a_column_with_a_dot_in_its_name_is_no_path(stage: Stage, admin: Client) -> None:
    others = table(admin, field("a", "json"))
    stage.execute(
        f'ALTER TABLE "{others.name}" ADD "a.b" text, ADD "c.d" jsonb, ADD "f:g" json;'
        f'INSERT INTO "{others.name}" (a, "a.b", "c.d", "f:g") '
        """VALUES ('{"b": "no"}', '5', '{"e": 7}', '{"h": 8}')"""
    )
    assert ids(others, "filter[a.b]=5") == [1]
    assert ids(others, "filter[a.b]=no") == []
    assert ids(others, "filter[c.d.e]=7") == [1]
    assert ids(others, "filter[f:g.h]=8") == [1]


def test_charts_and_metrics_of_panels_show_paths(admin: Client, articles: Table) -> None:
    dashboard = admin.post("/dashboards", {"name": "Prices"}).data["id"]
    panels: dict[str, dict[str, object]] = {
        "bar-chart": {"xAxis": "meta.kind", "yAxis": "meta.price", "function": "sum"},
        "metric": {"field": "meta.price", "function": "max"},
        "table": {"fields": ["meta.price"], "sortField": "meta.price", "limit": 1},
    }
    data = {}
    for kind, options in panels.items():
        body = {"dashboard": dashboard, "type": kind, "options": options}
        options |= {"collection": articles.name}
        key = admin.post("/panels", body).data["id"]
        data[kind] = admin.get(f"/panels/{key}/data").data
    assert data["bar-chart"]["points"][:2] == [{"x": "Film", "y": None}, {"x": "book", "y": 17.5}]
    assert data["metric"] == {"value": 100}
    assert len(data["table"]["items"]) == 1
    assert admin.delete(f"/dashboards/{dashboard}").status == 204


def test_rules_follow_a_field_that_is_renamed(stage: Stage, admin: Client) -> None:
    things = table(admin, field("meta", "json"))
    things.add({"meta": {"price": 1}}, {"meta": {"price": 9}})
    reader = Table(
        member(stage, may(things.name, permissions={"meta.price": {"_gt": 5}})), things.name
    )
    assert reader.column("id") == [2]
    renamed = admin.patch(f"/fields/{things.name}/meta", {"field": "data"})
    assert renamed.status == 200, renamed
    assert reader.column("id") == [2]
    assert reader.read("fields=data.price").data == [{"data": {"price": 9}}]


def test_all_paths_share_one_statement_and_are_its_parameters(articles: Table) -> None:
    def explained(query_string: str) -> dict[str, Any]:
        path = quote(f"{articles.path}?{query_string}", safe="")
        explanation: dict[str, Any] = articles.api.get(f"/utils/explain?path={path}").data
        return explanation

    for shape in ("filter[{}][_gt]=5", "sort={}", "groupBy={}&aggregate[sum]={}", "fields={}"):
        first, second = (explained(shape.format(name, name)) for name in ("meta.one", "meta.two"))
        assert first["statement"] == second["statement"], shape
        assert "one" in str(first["parameters"]), shape
        assert "one" not in first["statement"], shape
