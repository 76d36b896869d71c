"""Names, sequences, views and texts that are rare, but allowed, come back like all others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from cms.backup import BackupError
from cms.backup.archives import ArchiveFile
from cms.backup.collection_restoring import CollectionRestoration
from cms.database.row_merging import Merged
from tests.backup.archives import Installation, Notes
from tests.backup.comparison import execute, rows_of, structure_of
from tests.databases import run_sql

pytestmark = pytest.mark.release


def moved(service: Installation, target: Installation, archive: Path) -> Notes:
    """Back up a service and restore it elsewhere."""
    archive.unlink()
    service.back_up(archive)
    return target.restore(archive)


def restore(service: Installation, archive: Path, collection: str) -> Merged:
    return CollectionRestoration(service.dsn, ArchiveFile(archive), Notes(), collection).run()


def test_sequences_go_on_where_they_would_have_gone_on(
    living: Installation, empty: Installation, archive: Path
) -> None:
    """Also those whose next value somebody has chosen, and nobody has taken yet."""
    execute(
        living.dsn,
        "CREATE TABLE invoices (id serial, number bigint GENERATED ALWAYS AS IDENTITY);"
        "ALTER SEQUENCE invoices_id_seq RESTART WITH 1000;"
        "ALTER TABLE invoices ALTER number RESTART WITH 9000000000000000000;"
        'CREATE SEQUENCE "100% {} down" INCREMENT -1;'
        """SELECT setval('"100% {} down"', -7)""",
    )
    moved(living, empty, archive)
    execute(empty.dsn, "INSERT INTO invoices DEFAULT VALUES")
    assert run_sql(empty.dsn, "SELECT * FROM invoices") == [(1000, 9000000000000000000)]
    assert run_sql(empty.dsn, """SELECT nextval('"100% {} down"')""") == [(-8,)]


NAMES = (
    'CREATE TABLE "100%s {} ""x"" é" ("a%%s" integer PRIMARY KEY, "{b}" text, "c\\d" text,'
    ' "$1" integer GENERATED ALWAYS AS ("a%%s" + 1) STORED);'
    """INSERT INTO "100%s {} ""x"" é" VALUES (1, '%s', '{}'), (2, NULL, E'\\r\\n\\\\.');"""
    f'CREATE TABLE "{"n" * 63}" ("{"é" * 31}" text);'
    f'INSERT INTO "{"n" * 63}" VALUES (1);'
    "CREATE TABLE only_generated (a integer GENERATED ALWAYS AS (5) STORED);"
    "INSERT INTO only_generated DEFAULT VALUES"
)


def test_any_name_that_postgresql_takes_is_taken(
    living: Installation, empty: Installation, archive: Path
) -> None:
    execute(living.dsn, NAMES)
    rows = rows_of(living.dsn)
    moved(living, empty, archive)
    assert rows_of(empty.dsn) == rows
    execute(empty.dsn, 'DELETE FROM "100%s {} ""x"" é" WHERE "a%%s" = 1')
    assert restore(empty, archive, '100%s {} "x" é') == Merged(created=1, replaced=1)
    assert rows_of(empty.dsn) == rows


def test_a_table_with_a_name_of_the_catalogue_is_not_taken_for_that(
    living: Installation, empty: Installation, archive: Path
) -> None:
    """PostgreSQL looks into its own catalogue first, where a name has no schema."""
    execute(living.dsn, "CREATE TABLE public.pg_cast (id serial PRIMARY KEY, oid oid)")
    execute(living.dsn, "INSERT INTO public.pg_cast (oid) VALUES (3), (4)")
    casts = run_sql(living.dsn, "SELECT count(*) FROM pg_cast")
    moved(living, empty, archive)
    assert run_sql(empty.dsn, "SELECT * FROM public.pg_cast") == [(1, 3), (2, 4)]
    empty.restore(archive, replaces=True)
    assert run_sql(empty.dsn, "SELECT * FROM public.pg_cast") == [(1, 3), (2, 4)]
    assert run_sql(empty.dsn, "SELECT count(*) FROM pg_cast") == casts
    execute(empty.dsn, "UPDATE public.pg_cast SET oid = 9")
    assert restore(empty, archive, "pg_cast") == Merged(created=0, replaced=2)


def test_a_collection_with_the_name_of_the_staged_rows_comes_back(
    living: Installation, archive: Path
) -> None:
    execute(
        living.dsn,
        "CREATE TABLE restored_rows (id serial PRIMARY KEY, next integer REFERENCES restored_rows);"
        "INSERT INTO restored_rows (next) VALUES (1), (1)",
    )
    rows = rows_of(living.dsn)
    archive.unlink()
    living.back_up(archive)
    execute(living.dsn, "UPDATE restored_rows SET next = NULL; DELETE FROM restored_rows")
    assert restore(living, archive, "restored_rows") == Merged(created=2, replaced=0)
    assert rows_of(living.dsn) == rows


def test_views_are_filled_after_those_that_they_read(
    living: Installation, empty: Installation, archive: Path
) -> None:
    """A view may read one that is younger, by way of a view that was replaced."""
    execute(
        living.dsn,
        "CREATE VIEW between AS SELECT 1 AS topics;"
        "CREATE MATERIALIZED VIEW older AS SELECT topics FROM between;"
        "CREATE MATERIALIZED VIEW younger AS SELECT count(*)::integer AS topics FROM topics;"
        "CREATE OR REPLACE VIEW between AS SELECT topics FROM younger;"
        "REFRESH MATERIALIZED VIEW older",
    )
    assert moved(living, empty, archive).sentences == []
    assert run_sql(empty.dsn, "SELECT topics FROM older") == [(20,)]


def test_a_view_that_reads_an_empty_one_is_named(
    living: Installation, empty: Installation, archive: Path
) -> None:
    execute(
        living.dsn,
        "CREATE MATERIALIZED VIEW first AS SELECT count(*) AS topics FROM topics;"
        "CREATE MATERIALIZED VIEW second AS SELECT topics FROM first;"
        "REFRESH MATERIALIZED VIEW first WITH NO DATA",
    )
    (sentence,) = moved(living, empty, archive).sentences
    assert "The view second is left empty" in sentence
    assert structure_of(empty.dsn)["views"] == structure_of(living.dsn)["views"]


def test_texts_that_look_like_statements_of_pg_dump_stay(
    living: Installation, empty: Installation, archive: Path
) -> None:
    text = "''a''\n\\restrict b\nCREATE SCHEMA a;\nCOMMENT ON SCHEMA public IS ''a'';\n"
    execute(
        living.dsn,
        "COMMENT ON SCHEMA public IS NULL;"
        f"CREATE FUNCTION words() RETURNS text LANGUAGE sql AS $$ SELECT '{text}' $$;"
        "CREATE TABLE noted (a text); CREATE INDEX noted_a ON noted (a);"
        f"COMMENT ON INDEX noted_a IS '{text}'",
    )
    query = "SELECT words(), obj_description('noted_a'::regclass)"
    words = run_sql(living.dsn, query)
    moved(living, empty, archive)
    assert run_sql(empty.dsn, query) == words


IDENTITIES = (
    "CREATE TABLE orders (id uuid PRIMARY KEY, always integer GENERATED ALWAYS AS IDENTITY,"
    " usual integer GENERATED BY DEFAULT AS IDENTITY UNIQUE, title text);"
    "INSERT INTO orders SELECT gen_random_uuid() FROM generate_series(1, 3)"
)


@pytest.fixture
def ordered(living: Installation, archive: Path) -> Installation:
    """A service with a table whose columns beside the key take values from sequences."""
    execute(living.dsn, IDENTITIES)
    archive.unlink()
    living.back_up(archive)
    return living


def test_values_that_only_postgresql_gives_come_back(ordered: Installation, archive: Path) -> None:
    rows = rows_of(ordered.dsn)["orders"]
    execute(ordered.dsn, "UPDATE orders SET title = 'changed' WHERE always < 3")
    execute(ordered.dsn, "DELETE FROM orders WHERE always = 3")
    assert restore(ordered, archive, "orders") == Merged(created=1, replaced=2)
    assert rows_of(ordered.dsn)["orders"] == rows


def test_a_value_that_only_postgresql_gives_and_would_change_is_refused(
    ordered: Installation, archive: Path
) -> None:
    execute(ordered.dsn, "UPDATE orders SET always = DEFAULT WHERE always = 2")
    rows = rows_of(ordered.dsn)["orders"]
    with pytest.raises(BackupError, match=r"another always\. .*Nothing has been changed"):
        restore(ordered, archive, "orders")
    assert rows_of(ordered.dsn)["orders"] == rows


def test_later_rows_of_a_collection_that_was_made_again_get_values_behind_all_restored_ones(
    ordered: Installation, archive: Path
) -> None:
    execute(ordered.dsn, "TRUNCATE orders RESTART IDENTITY")
    assert restore(ordered, archive, "orders") == Merged(created=3, replaced=0)
    execute(ordered.dsn, "INSERT INTO orders VALUES (gen_random_uuid())")
    assert run_sql(ordered.dsn, "SELECT max(always), max(usual) FROM orders") == [(4, 4)]


def test_keys_that_are_more_than_a_number_come_back(living: Installation, archive: Path) -> None:
    execute(
        living.dsn,
        "CREATE SEQUENCE numbers;"
        "CREATE DOMAIN positive AS numeric CHECK (VALUE > 0);"
        "CREATE TABLE bills (id text PRIMARY KEY DEFAULT 'BILL-' || nextval('numbers'),"
        " number positive DEFAULT nextval('numbers'), previous text REFERENCES bills);"
        "INSERT INTO bills (previous) VALUES (NULL), (NULL);"
        "INSERT INTO bills (number) VALUES (1e30)",
    )
    rows = rows_of(living.dsn)["bills"]
    archive.unlink()
    living.back_up(archive)
    execute(living.dsn, "DELETE FROM bills; ALTER SEQUENCE numbers RESTART")
    assert restore(living, archive, "bills") == Merged(created=3, replaced=0)
    assert rows_of(living.dsn)["bills"] == rows
    execute(living.dsn, "INSERT INTO bills (id) VALUES ('last')")
    assert run_sql(living.dsn, "SELECT number FROM bills WHERE id = 'last'") == [(5,)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("money DEFAULT nextval('totals')::integer::money", "1"),
        ("oid DEFAULT nextval('totals')::oid", "7"),
        ("double precision DEFAULT nextval('totals')", "9223372036854775807"),
        ("double precision DEFAULT nextval('totals')", "'Infinity'"),
        ("numeric DEFAULT nextval('totals')", "1e300"),
    ],
)
def test_numbers_that_no_sequence_reaches_come_back(
    living: Installation, archive: Path, column: str, value: str
) -> None:
    execute(
        living.dsn,
        "CREATE SEQUENCE totals;"
        f"CREATE TABLE sums (id integer PRIMARY KEY, total {column});"
        f"INSERT INTO sums VALUES (1, {value})",
    )
    archive.unlink()
    living.back_up(archive)
    assert restore(living, archive, "sums") == Merged(created=0, replaced=1)


def test_a_schema_whose_name_is_a_word_of_sql_is_like_any_other(
    living: Installation, empty: Installation, archive: Path
) -> None:
    """PostgreSQL quotes it where it writes it out."""
    execute(living.dsn, 'ALTER SCHEMA public RENAME TO "order"; CREATE SCHEMA public')
    execute(
        living.dsn,
        'CREATE TABLE "order".notes (id serial PRIMARY KEY, topic int REFERENCES "order".topics);'
        'INSERT INTO "order".notes (topic) VALUES (1)',
    )
    options = "-csearch_path=order,public"
    tenant = replace(living, dsn=make_conninfo(living.dsn, options=options))
    target = replace(empty, dsn=make_conninfo(empty.dsn, options=options))
    execute(empty.dsn, 'CREATE SCHEMA "order"')
    moved(tenant, target, archive)
    assert run_sql(empty.dsn, 'SELECT topic FROM "order".notes') == [(1,)]
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname ~ 'order'"
    assert run_sql(empty.dsn, schemas) == [(1,)]
    execute(empty.dsn, 'DELETE FROM "order".notes')
    assert restore(target, archive, "notes") == Merged(created=1, replaced=0)
