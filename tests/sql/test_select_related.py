"""Compilation of reads through relations as a table: query string, exact SQL, parameters."""

from __future__ import annotations

from typing import Any

import pytest

from cms.query.sql.link_keys import KEY_PATTERNS
from tests.sql.compiler import USER, Compiler, assert_one_statement
from tests.things import Stage

TABLES = """
CREATE TABLE people (id integer PRIMARY KEY, name text, boss integer, born date, account uuid);
CREATE TABLE books (id integer PRIMARY KEY, title text, author integer);
CREATE TABLE tags (id integer PRIMARY KEY, name text);
CREATE TABLE books_tags (id integer PRIMARY KEY, book integer, tag integer);
CREATE TABLE parts (id integer PRIMARY KEY, book integer, item text, kind text);
CREATE TABLE notes (id uuid PRIMARY KEY, text text);
INSERT INTO people VALUES (1, 'Ann', NULL, '1970-01-01'), (2, 'Bob', 1, '1980-01-01');
INSERT INTO books VALUES (1, 'One', 1), (2, 'Two', 2), (3, 'Three', 2);
INSERT INTO tags VALUES (1, 'x');
INSERT INTO books_tags VALUES (1, 1, 1), (2, 2, 1);
INSERT INTO parts VALUES (1, 1, '1', 'tags');
"""
RELATIONS: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("people", "boss", "people", {"one_field": "staff"}),
    ("books", "author", "people", {"one_field": "books"}),
    ("books_tags", "book", "books", {"one_field": "tags", "junction_field": "tag"}),
    ("books_tags", "tag", "tags", {"one_field": "books", "junction_field": "book"}),
    ("parts", "book", "books", {"one_field": "parts"}),
    (
        "parts",
        "item",
        None,
        {"one_collection_field": "kind", "one_allowed_collections": ["tags", "notes"]},
    ),
]
INTEGER = KEY_PATTERNS["bigint"]
UUID = KEY_PATTERNS["uuid"]


def fresh(inner: str) -> str:
    """The frame of a read of one column."""
    return (
        "SELECT r.c0, v.structure, v.access, v.flows, r.row_exists "
        "FROM system_version AS v LEFT JOIN LATERAL "
        f"(SELECT TRUE AS row_exists, {inner}) AS r ON TRUE"
    )


# (collection, query string, SQL, parameters)
READS: list[tuple[str, str, str, list[object]]] = [
    (
        "books",
        "fields=author.name",
        fresh(
            '(SELECT row_to_json(n.*) FROM (SELECT t1."name"::text AS "name" FROM "people" AS t1 '
            'WHERE t1."id" '
            '= t0."author") AS n LIMIT 1) AS c0 FROM "books" AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        [],
    ),
    (
        "books",
        "fields=author",
        fresh('t0."author" AS c0 FROM "books" AS t0 ORDER BY t0."id" LIMIT 100'),
        [],
    ),
    (
        "people",
        "fields=books",
        fresh(
            'coalesce((SELECT json_agg(n."id") FROM (SELECT t1."id" AS "id" FROM "books" AS t1 '
            "WHERE "
            't1."author" = t0."id" ORDER BY t1."id" LIMIT 100) AS n), \'[]\'::json) AS c0 FROM '
            '"people" AS t0 '
            'ORDER BY t0."id" LIMIT 100'
        ),
        [],
    ),
    (
        "people",
        "fields=books.title&deep[books][_limit]=3&deep[books][_offset]=1&deep[books][_sort]=-title",
        fresh(
            'coalesce((SELECT json_agg(row_to_json(n.*)) FROM (SELECT t1."title"::text AS "title" '
            "FROM (SELECT "
            't1.* FROM (SELECT t1.* FROM "books" AS t1 WHERE t1."author" = t0."id" ORDER BY '
            't1."title" DESC, '
            't1."id" LIMIT 5) AS t1 LIMIT $1::bigint OFFSET $2::bigint) AS t1) AS n), '
            "'[]'::json) AS c0 FROM "
            '"people" AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        [3, 1],
    ),
    (
        "people",
        "fields=books.title&deep[books][_filter][title]=One&deep[books][_search]=o",
        fresh(
            'coalesce((SELECT json_agg(row_to_json(n.*)) FROM (SELECT t1."title"::text AS "title" '
            'FROM "books" '
            'AS t1 WHERE t1."author" = t0."id" AND (t1."title" = $1::text AND (t1."id" = '
            "$2::bigint OR "
            "system_fold_unindexed(t1.\"title\") LIKE '%' || regexp_replace(system_fold($3::text), "
            "'([\\\\%_])', "
            "'\\\\\\1', 'g') || '%' OR t1.\"author\" = $4::bigint)) ORDER BY t1.\"id\" LIMIT 100) "
            "AS n), "
            '\'[]\'::json) AS c0 FROM "people" AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        ["One", None, "o", None],
    ),
    (
        "people",
        "fields=books.t&deep[books][_alias][t]=title",
        fresh(
            "coalesce((SELECT json_agg(('{' || $1::text || coalesce(to_json(n.c0)::text, 'null') "
            "|| "
            '\'}\')::json) FROM (SELECT t1."title"::text AS c0 FROM "books" AS t1 WHERE '
            't1."author" = '
            't0."id" ORDER BY t1."id" LIMIT 100) AS n), \'[]\'::json) AS c0 FROM "people" AS t0 '
            "ORDER BY "
            't0."id" LIMIT 100'
        ),
        ['"t":'],
    ),
    # Two aggregates of one function are together under its name.
    (
        "people",
        "fields=books&deep[books][_aggregate][min]=id,title",
        fresh(
            "coalesce((SELECT json_agg(('{' || $1::text || coalesce(('{' || $2::text || "
            "coalesce(to_json(n.c0)::text, 'null') || ',' || $3::text || "
            "coalesce(to_json(n.c1)::text, 'null') || '}')::json::text, 'null') || '}')::json) "
            'FROM (SELECT min(t1."id") AS c0, min(t1."title")::text AS c1 FROM "books" AS t1 '
            'WHERE t1."author" = t0."id" LIMIT 100) AS n), \'[]\'::json) AS c0 '
            'FROM "people" AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        ['"min":', '"id":', '"title":'],
    ),
    (
        "people",
        "fields=books&deep[books][_aggregate][count]=*&deep[books][_groupBy]=author",
        fresh(
            "coalesce((SELECT json_agg(('{' || $1::text || coalesce(to_json(n.c0)::text, 'null') "
            "|| ',' || "
            "$2::text || coalesce(to_json(n.c1)::text, 'null') || '}')::json) FROM (SELECT "
            't1."author" AS '
            'c0, count(*) AS c1 FROM "books" AS t1 WHERE t1."author" = t0."id" GROUP BY '
            't1."author" ORDER '
            'BY t1."author" LIMIT 100) AS n), \'[]\'::json) AS c0 FROM "people" AS t0 ORDER BY '
            't0."id" LIMIT '
            "100"
        ),
        ['"author":', '"count":'],
    ),
    (
        "books",
        "fields=tags.tag.name",
        fresh(
            "coalesce((SELECT json_agg(row_to_json(n.*)) FROM (SELECT (SELECT row_to_json(n.*) "
            "FROM (SELECT "
            't2."name"::text AS "name" FROM "tags" AS t2 WHERE t2."id" = t1."tag") '
            'AS n LIMIT 1) AS "tag" '
            "FROM "
            '"books_tags" AS t1 WHERE t1."book" = t0."id" ORDER BY t1."id" LIMIT 100) AS n), '
            "'[]'::json) AS "
            'c0 FROM "books" AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        [],
    ),
    (
        "people",
        "fields=staff.staff.name",
        fresh(
            "coalesce((SELECT json_agg(row_to_json(n.*)) FROM (SELECT coalesce((SELECT "
            'json_agg(row_to_json(n.*)) FROM (SELECT t2."name"::text AS "name" FROM "people" AS '
            "t2 WHERE "
            't2."boss" = t1."id" ORDER BY t2."id" LIMIT 100) AS n), \'[]\'::json) AS "staff" FROM '
            '"people" AS '
            't1 WHERE t1."boss" = t0."id" ORDER BY t1."id" LIMIT 100) AS n), \'[]\'::json) AS c0 '
            'FROM "people" '
            'AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        [],
    ),
    (
        "parts",
        "fields=item:tags.name",
        fresh(
            'coalesce((SELECT row_to_json(n.*) FROM (SELECT t1."name"::text AS "name" FROM "tags" '
            'AS t1 WHERE t1."id" = '
            'CASE WHEN t0."kind" = $1::text AND t0."item"::text ~ $2::text THEN '
            't0."item"::text::bigint END) '
            'AS n LIMIT 1), to_json(CASE WHEN t0."kind" <> ALL ($3::text[]) THEN t0."item" '
            'END::text)) AS c0 FROM "parts" AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        ["tags", INTEGER, ["tags"]],
    ),
    (
        "parts",
        "fields=item:tags.name,item:notes.text",
        fresh(
            'coalesce((SELECT row_to_json(n.*) FROM (SELECT t1."name"::text AS "name" FROM "tags" '
            "AS t1 WHERE "
            't1."id" = CASE WHEN t0."kind" = $1::text AND t0."item"::text ~ $2::text THEN '
            't0."item"::text::bigint END) AS n LIMIT 1), (SELECT row_to_json(n.*) FROM (SELECT '
            't1."text"::text AS '
            '"text" FROM "notes" AS t1 WHERE t1."id" = CASE WHEN t0."kind" = $3::text AND '
            't0."item"::text ~ '
            '$4::text THEN t0."item"::text::uuid END) '
            'AS n LIMIT 1), to_json(CASE WHEN t0."kind" <> ALL ($5::text[]) THEN t0."item" '
            'END::text)) AS c0 FROM "parts" AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        ["tags", INTEGER, "notes", UUID, ["tags", "notes"]],
    ),
    (
        "parts",
        "fields=item&deep[item:tags][_filter][name]=x",
        fresh(
            'CASE WHEN (EXISTS (SELECT FROM "tags" AS t1 WHERE t1."id" = CASE WHEN t0."kind" = '
            "$1::text AND "
            't0."item"::text ~ $2::text THEN t0."item"::text::bigint END AND (TRUE AND t1."name" '
            "= $3::text)) "
            'OR EXISTS (SELECT FROM "notes" AS t1 WHERE t1."id" = CASE WHEN t0."kind" = $4::text '
            "AND "
            't0."item"::text ~ $5::text THEN t0."item"::text::uuid END AND (TRUE AND TRUE))) THEN '
            't0."item" '
            'END::text AS c0 FROM "parts" AS t0 ORDER BY t0."id" LIMIT 100'
        ),
        ["tags", INTEGER, "x", "notes", UUID],
    ),
    (
        "books",
        "fields=id&filter[author][name]=Bob",
        fresh(
            't0."id" AS c0 FROM "books" AS t0 WHERE EXISTS (SELECT FROM "people" AS t1 WHERE '
            't1."id" = '
            't0."author" AND t1."name" = $1::text) ORDER BY t0."id" LIMIT 100'
        ),
        ["Bob"],
    ),
    (
        "people",
        "fields=id&filter[books][title]=One",
        fresh(
            't0."id" AS c0 FROM "people" AS t0 WHERE EXISTS (SELECT FROM "books" AS t1 WHERE '
            't1."author" = '
            't0."id" AND t1."title" = $1::text) ORDER BY t0."id" LIMIT 100'
        ),
        ["One"],
    ),
    (
        "people",
        "fields=id&filter[books][_none][title]=One",
        fresh(
            't0."id" AS c0 FROM "people" AS t0 WHERE NOT EXISTS (SELECT FROM "books" AS t1 WHERE '
            't1."author" = '
            't0."id" AND t1."title" = $1::text) ORDER BY t0."id" LIMIT 100'
        ),
        ["One"],
    ),
    (
        "people",
        "fields=id&filter[books][_some][tags][tag][name]=x",
        fresh(
            't0."id" AS c0 FROM "people" AS t0 WHERE EXISTS (SELECT FROM "books" AS t1 WHERE '
            't1."author" = '
            't0."id" AND EXISTS (SELECT FROM "books_tags" AS t2 WHERE t2."book" = t1."id" AND '
            "EXISTS (SELECT "
            'FROM "tags" AS t3 WHERE t3."id" = t2."tag" AND t3."name" = $1::text))) ORDER BY '
            't0."id" LIMIT 100'
        ),
        ["x"],
    ),
    (
        "parts",
        "fields=id&filter[item:tags][name]=x",
        fresh(
            't0."id" AS c0 FROM "parts" AS t0 WHERE EXISTS (SELECT FROM "tags" AS t1 WHERE '
            't1."id" = CASE WHEN '
            't0."kind" = $1::text AND t0."item"::text ~ $2::text THEN t0."item"::text::bigint END '
            "AND "
            't1."name" = $3::text) ORDER BY t0."id" LIMIT 100'
        ),
        ["tags", INTEGER, "x"],
    ),
    (
        "people",
        "fields=count(books)&filter[count(books)][_gt]=1&sort=-count(books)",
        fresh(
            '(SELECT count(*)::integer FROM "books" AS t1 WHERE t1."author" = t0."id") AS c0 FROM '
            '"people" AS '
            't0 WHERE (SELECT count(*)::integer FROM "books" AS t1 WHERE t1."author" = t0."id") > '
            "$1::bigint "
            'ORDER BY (SELECT count(*)::integer FROM "books" AS t1 WHERE t1."author" = t0."id") '
            'DESC, t0."id" '
            "LIMIT 100"
        ),
        ["1"],
    ),
    (
        "people",
        "fields=id&sort=books.title,-books.tags.tag",
        fresh(
            't0."id" AS c0 FROM "people" AS t0 ORDER BY (SELECT t1."title" FROM "books" AS t1 '
            'WHERE t1."author" = t0."id" ORDER BY 1 LIMIT 1), (SELECT (SELECT t2."tag" FROM '
            '"books_tags" AS t2 WHERE t2."book" = t1."id" ORDER BY 1 DESC NULLS LAST LIMIT 1) FROM '
            '"books" AS t1 WHERE t1."author" = t0."id" ORDER BY 1 DESC NULLS LAST LIMIT 1) DESC, '
            't0."id" LIMIT 100'
        ),
        [],
    ),
    (
        "people",
        "fields=id&filter[$FOLLOW(books,author)][_none][title]=x",
        fresh(
            't0."id" AS c0 FROM "people" AS t0 WHERE NOT EXISTS (SELECT FROM "books" AS t1 WHERE '
            't1."author" = t0."id" AND t1."title" = $1::text) ORDER BY t0."id" LIMIT 100'
        ),
        ["x"],
    ),
    (
        "tags",
        "fields=id&filter[$FOLLOW(parts,item,kind)][id]=1",
        fresh(
            't0."id" AS c0 FROM "tags" AS t0 WHERE EXISTS (SELECT FROM "parts" AS t1 WHERE t0."id" '
            '= CASE WHEN t1."kind" = $1::text AND t1."item"::text ~ $2::text THEN '
            't1."item"::text::bigint END AND t1."id" = $3::bigint) ORDER BY t0."id" LIMIT 100'
        ),
        ["tags", INTEGER, "1"],
    ),
    (
        "books",
        "fields=id&sort=-author.boss.name,author.year(born)",
        fresh(
            't0."id" AS c0 FROM "books" AS t0 ORDER BY (SELECT (SELECT t2."name" FROM "people" AS '
            "t2 WHERE "
            't2."id" = t1."boss") FROM "people" AS t1 WHERE t1."id" = t0."author") DESC, (SELECT '
            "CASE WHEN "
            'isfinite(t1."born") THEN EXTRACT(YEAR FROM t1."born")::integer END FROM "people" AS '
            "t1 WHERE "
            't1."id" = t0."author"), t0."id" LIMIT 100'
        ),
        [],
    ),
    (
        "people",
        "groupBy=count(books)&aggregate[count]=*&sort=-count",
        (
            "SELECT r.c0, r.c1, v.structure, v.access, v.flows, r.row_exists "
            "FROM system_version AS v LEFT JOIN LATERAL "
            '(SELECT TRUE AS row_exists, (SELECT count(*)::integer FROM "books" AS t1 WHERE '
            't1."author" = t0."id") '
            'AS c0, count(*) AS c1 FROM "people" AS t0 GROUP BY (SELECT count(*)::integer FROM '
            '"books" AS t1 '
            'WHERE t1."author" = t0."id") ORDER BY count(*) DESC, (SELECT count(*)::integer FROM '
            '"books" AS t1 '
            'WHERE t1."author" = t0."id") LIMIT 100) AS r ON TRUE'
        ),
        [],
    ),
    (
        "people",
        "fields=id&filter[account]=$CURRENT_USER",
        fresh(
            't0."id" AS c0 FROM "people" AS t0 WHERE t0."account" = $1::uuid ORDER BY t0."id" '
            "LIMIT 100"
        ),
        [USER],
    ),
    (
        "people",
        "fields=id&filter[account][_in]=$CURRENT_USER.role.users.id",
        fresh(
            't0."id" AS c0 FROM "people" AS t0 WHERE t0."account" = ANY (ARRAY(SELECT t3."id" FROM '
            '"system_users" AS t3 WHERE t3."role" = ANY (ARRAY(SELECT t2."id" FROM "system_roles" '
            "AS t2 WHERE "
            't2."id" = ANY (ARRAY(SELECT t1."role" FROM "system_users" AS t1 WHERE t1.id = '
            "$1::uuid)))))) "
            'ORDER BY t0."id" LIMIT 100'
        ),
        [USER],
    ),
    (
        "people",
        "fields=id&filter[books][title]=One&meta=*",
        (
            "SELECT r.c0, v.structure, v.access, v.flows, r.row_exists, "
            '(SELECT count(*) FROM "people" AS t0), (SELECT '
            'count(*) FROM "people" AS t0 WHERE EXISTS (SELECT FROM "books" AS t1 WHERE '
            't1."author" = t0."id" '
            'AND t1."title" = $1::text)) FROM system_version AS v LEFT JOIN LATERAL (SELECT TRUE '
            "AS row_exists, "
            't0."id" AS c0 FROM "people" AS t0 WHERE EXISTS (SELECT FROM "books" AS t1 WHERE '
            't1."author" = '
            't0."id" AND t1."title" = $1::text) ORDER BY t0."id" LIMIT 100) AS r ON TRUE'
        ),
        ["One"],
    ),
]
IDS = [f"{row[0]}?{row[1]}" for row in READS]


@pytest.fixture(scope="module", autouse=True)
def related_tables(stage: Stage) -> None:
    stage.execute(TABLES)
    for collection, field, related, meta in RELATIONS:
        body = {
            "collection": collection,
            "field": field,
            "related_collection": related,
            "meta": meta,
        }
        assert stage.admin.post("/relations", body).status == 200


@pytest.mark.parametrize(("collection", "query_string", "text", "values"), READS, ids=IDS)
def test_a_query_through_relations_compiles_to_one_statement_and_runs(
    compiler: Compiler, collection: str, query_string: str, text: str, values: list[object]
) -> None:
    statement, parameters = compiler.compile(collection, query_string)
    assert statement.text == text
    assert parameters == values
    compiler.run(statement, parameters)


@pytest.mark.parametrize("path", IDS)
def test_a_read_is_one_statement(stage: Stage, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    assert_one_statement(stage, monkeypatch, f"/items/{path}&meta=*")
