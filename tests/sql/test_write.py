"""The printed form of writes, as a table; the tests of items execute each of them."""

from __future__ import annotations

import pytest

from cms.fragment import Fragment
from cms.query.sql import locks, write
from cms.query.sql.arguments import ArgumentSlots, array
from cms.query.sql.referential import KeySide, RowReference, record_deleted
from cms.schema.model import Collection, Field, Json, Kind
from cms.schema.referential_actions import Table
from cms.schema.types import TYPES
from tests.unit.library import column


def books(meta: Json | None = None) -> Collection:
    fields = {
        "id": Field(
            "books",
            "id",
            TYPES["integer"],
            (),
            column("id", "integer", "int4", is_primary_key=True),
        ),
        "title": Field("books", "title", TYPES["text"], (), column("title", "text", "text")),
        "tags": Field("books", "tags", TYPES["json"], (), column("tags", "json", "json")),
        "pin": Field("books", "pin", TYPES["text"], ("conceal",), column("pin", "text", "text")),
    }
    return Collection("books", Kind.TABLE, fields, fields["id"], meta)


SILENT = books({"accountability": None})
DATA = (
    '(SELECT row_to_json(d.*) FROM (SELECT t0."id" AS "id", t0."title"::text AS "title", '
    't0."tags"::json AS "tags") AS d)'
)


def chosen(collection: Collection, *names: str) -> list[Field]:
    return [collection.fields[name] for name in names]


def removal_of_rows_met_before() -> Fragment:
    """The rows that go with the rows above them, without those that are recorded already."""
    own = KeySide(Table("books"), ("part_of",), SILENT.key, SILENT)
    parent = KeySide(Table("books"), ("id",), SILENT.key)
    return record_deleted(RowReference(own, parent), ArgumentSlots(), count_only=True)


CASES: list[tuple[str, Fragment, str]] = [
    (
        "rows met before are looked up, and not compared one by one",
        removal_of_rows_met_before(),
        'WITH rows AS (SELECT t0."id"::text AS item, up.revision AS parent FROM "books" AS t0 '
        'JOIN unnest($1::bigint[], $2::bigint[]) AS up (key, revision) ON t0."part_of" = up.key '
        'WHERE t0."id" NOT IN (SELECT unnest($3::bigint[])) ORDER BY t0."id" FOR UPDATE OF t0) '
        "SELECT count(*) FROM rows",
    ),
    (
        "rows without a history",
        write.insert(SILENT, chosen(SILENT, "title", "tags"), ArgumentSlots()),
        'WITH rows AS (INSERT INTO "books" AS t0 ("title", "tags") SELECT r.c0, r.c1::json '
        "FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r (c0, c1, n) ORDER BY r.n "
        'RETURNING t0."id"::text AS item) SELECT rows.item, NULL FROM rows',
    ),
    (
        "a row that brings a key",
        write.insert(SILENT, chosen(SILENT, "id"), ArgumentSlots(single=True)),
        'WITH rows AS (INSERT INTO "books" AS t0 ("id") SELECT r.c0 FROM (VALUES ($1::bigint, 1)) '
        "AS r (c0, n) WHERE "
        "(SELECT system_advance_sequence($2::text, $3::text, ARRAY[$1::bigint])) ORDER BY r.n "
        'RETURNING t0."id"::text AS item) SELECT rows.item, NULL FROM rows',
    ),
    (
        "one row",
        write.insert(SILENT, chosen(SILENT, "title"), ArgumentSlots(single=True)),
        'WITH rows AS (INSERT INTO "books" AS t0 ("title") SELECT r.c0 FROM (VALUES ($1::text, '
        "1)) AS r (c0, n) "
        'ORDER BY r.n RETURNING t0."id"::text AS item) SELECT rows.item, NULL FROM rows',
    ),
    (
        "rows without values",
        write.insert(SILENT, [], ArgumentSlots()),
        'WITH rows AS (INSERT INTO "books" AS t0 SELECT  FROM generate_series(1, $1::integer) AS '
        "r (n) ORDER BY r.n "
        'RETURNING t0."id"::text AS item) SELECT rows.item, NULL FROM rows',
    ),
    (
        "a change",
        write.update(SILENT, chosen(SILENT, "title"), ArgumentSlots()),
        'WITH old AS (SELECT r.n, t0."id" AS k, r.c1 FROM "books" AS t0 '
        "JOIN unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS r (c0, c1, n) "
        'ON t0."id" = r.c0 ORDER BY t0."id" FOR NO KEY UPDATE OF t0), '
        'rows AS (UPDATE "books" AS t0 SET "title" = old.c1 FROM old WHERE t0."id" = old.k '
        'RETURNING t0."id"::text AS item, old.n) SELECT rows.n, rows.item, NULL FROM rows',
    ),
    (
        "a lock of elements of lists, by their keys and by their owners",
        locks.lock_list(SILENT, SILENT.fields["title"], ArgumentSlots()),
        'SELECT t."id"::text FROM "books" AS t WHERE t."id" = ANY (ARRAY('
        'SELECT k."id" FROM "books" AS k WHERE k."id" = ANY ($1::bigint[]) '
        'UNION ALL SELECT l."id" FROM "books" AS l WHERE l."title" = ANY ($2::text[]))) '
        'ORDER BY t."id" FOR NO KEY UPDATE',
    ),
    (
        "a deletion with its history",
        write.delete(books(), ArgumentSlots()),
        'WITH old AS (SELECT t0."id" AS k FROM "books" AS t0 WHERE t0."id" = ANY ($1::bigint[]) '
        'ORDER BY t0."id" '
        'FOR UPDATE), rows AS (DELETE FROM "books" AS t0 USING old WHERE t0."id" = old.k '
        "RETURNING t0.\"id\"::text AS item, nextval('system_activity_id_seq') AS activity, "
        f"nextval('system_revisions_id_seq') AS revision, {DATA} AS data), "
        'activities AS (INSERT INTO system_activity (id, action, "user", ip, user_agent, origin, '
        "collection, item) "
        "SELECT rows.activity, $2::text, $3::uuid, $4::text, $5::text, $6::text, $7::text, "
        "rows.item FROM rows), "
        "revisions AS (INSERT INTO system_revisions (id, activity, collection, item, data, delta) "
        "SELECT rows.revision, rows.activity, $8::text, rows.item, rows.data, NULL::json FROM "
        "rows) "
        "SELECT rows.item, rows.revision FROM rows",
    ),
]


@pytest.mark.parametrize(
    ("fragment", "sql"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_writes_are_printed_as_one_statement(fragment: Fragment, sql: str) -> None:
    assert fragment.numbered()[0] == sql


@pytest.mark.parametrize(
    ("values", "text"),
    [([], "{}"), (["a", None, ""], '{"a",NULL,""}'), (['"', "\\", "{,}"], '{"\\"","\\\\","{,}"}')],
)
def test_arrays_are_written_as_postgresql_reads_them(values: list[str | None], text: str) -> None:
    assert array(values) == text
