"""A service with everything in it that is hard to bring back, and its archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.backup.archives import Installation
from tests.databases import drop_database
from tests.files.forms import FileService, locations_in

HARD_TABLES = r"""
    CREATE TYPE mood AS ENUM ('sad', 'it''s "fine"');
    CREATE DOMAIN short AS text CHECK (length(VALUE) < 10);
    CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.words = upper(NEW.words);
        RETURN NEW;
    END
    $$;
    CREATE TABLE hard (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        words text,
        doubled text GENERATED ALWAYS AS (words || words) STORED,
        "Quoted ""Name"".x" mood,
        short short,
        moments timestamptz[],
        span interval,
        amount numeric,
        ratio double precision,
        content bytea,
        document jsonb,
        parent integer REFERENCES hard
    );
    COMMENT ON COLUMN hard.words IS 'it''s; a comment';
    INSERT INTO hard (words, "Quoted ""Name"".x", short, moments, span, amount, ratio, content,
                      document, parent)
    VALUES
        (E'tab\t line\n back\\slash \\. \\N', 'it''s "fine"', 'abc',
         '{2026-11-23 12:00:00.123456+09, infinity}', '1 mon -3 days 04:05:06.7',
         'NaN', 'Infinity', '\x00ff5c', '{"a": [1, null, "\\"]}', 2),
        ('', 'sad', NULL, '{}', NULL, 123456789012345678901234567890.0123456789, 0.1, '', '[]', 1),
        (NULL, NULL, NULL, NULL, NULL, -0.0, 'NaN', NULL, 'null', NULL);
    CREATE TRIGGER shouts BEFORE INSERT OR UPDATE ON hard FOR EACH ROW EXECUTE FUNCTION shout();
    CREATE TABLE "Large.Letters/é" (" id" uuid PRIMARY KEY, "select" text UNIQUE);
    INSERT INTO "Large.Letters/é"
    SELECT gen_random_uuid(), number FROM generate_series(1, 50) number;
    CREATE TABLE days (day date, note text) PARTITION BY RANGE (day);
    CREATE TABLE days_2026 PARTITION OF days FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
    CREATE TABLE days_rest PARTITION OF days DEFAULT;
    INSERT INTO days VALUES ('2026-05-05', 'in'), ('1999-01-01', 'before');
    CREATE TABLE parents (name text);
    CREATE TABLE children (age integer) INHERITS (parents);
    INSERT INTO parents VALUES ('only the parent');
    INSERT INTO children VALUES ('the child', 3);
    CREATE TABLE no_columns ();
    INSERT INTO no_columns DEFAULT VALUES;
    CREATE TABLE no_rows (id bigserial PRIMARY KEY, title text DEFAULT 'it''s');
    CREATE VIEW loud AS SELECT id, words FROM hard WHERE words <> '';
    CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS hard FROM loud;
    CREATE INDEX hard_words_idx ON hard (lower(words)) WHERE words IS NOT NULL;
    CREATE SEQUENCE used_up START 5;
    SELECT nextval('used_up');
    SELECT nextval('no_rows_id_seq') FROM generate_series(1, 7);
"""


@pytest.fixture(scope="module")
def service(files: FileService) -> Installation:
    """A service that holds all of that; tests leave it as it is."""
    files.stage.execute(HARD_TABLES)
    admin = files.admin
    category = {"field": "title", "type": "string"}
    answer = admin.post(
        "/collections", {"collection": "topics", "schema": {}, "fields": [category]}
    )
    assert answer.status == 200
    for number in range(20):
        assert admin.post("/items/topics", {"title": f"Topic {number}\n"}).status == 200
    files.add(b"", "empty.txt")
    files.add("Grüße".encode(), "größe \U0001f600.txt")
    files.add(bytes(range(256)) * 300, "bytes.bin", storage="other")
    return Installation(files.stage.dsn, files.locations)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "service.tar.gz"


@pytest.fixture(scope="module")
def complete_archive(service: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the service as the module finds it."""
    path = tmp_path_factory.mktemp("archives") / "service.tar.gz"
    service.back_up(path)
    return path


@pytest.fixture
def archived(complete_archive: Path, archive: Path) -> Path:
    """An archive of the service in the test's own folder."""
    copyfile(complete_archive, archive)
    return archive


@pytest.fixture(scope="module")
def restored(
    complete_archive: Path,
    make_database: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Installation:
    """What the archive is restored to; each test changes a copy of its database."""
    locations = locations_in(tmp_path_factory.mktemp("restored"))
    installation = Installation(make_database(), locations)
    installation.restore(complete_archive)
    return installation


@pytest.fixture
def living(
    restored: Installation, archived: Path, make_database: Callable[..., str]
) -> Iterator[Installation]:
    """A copy of the service, restored from its archive, for this test to change."""
    dsn = make_database(str(conninfo_to_dict(restored.dsn)["dbname"]))
    yield replace(restored, dsn=dsn)
    drop_database(dsn)


@pytest.fixture
def empty(make_database: Callable[..., str], tmp_path: Path) -> Iterator[Installation]:
    """A database with nothing in it, and folders for its files."""
    dsn = make_database()
    yield Installation(dsn, locations_in(tmp_path / "empty"))
    drop_database(dsn)
