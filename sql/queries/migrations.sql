-- name: lock_migrations
-- Lets one process at a time migrate a schema, until its transaction ends. Not a lock of the session: a pooler would keep it.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' system_migrations', 0));

-- name: lock_database
-- Lets one installation at a time make what all schemas of the database share, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('system_database', 0));

-- name: create_shared_extensions
-- Creates the extensions for searches in the schema that all installations have on their search path: in the schema of
-- one of them they would end with it. Where this account may not do so, migration 0001 does what it can.
DO $$
DECLARE
    wanted text;
BEGIN
    FOR wanted IN
        SELECT name
        FROM pg_available_extensions
        WHERE name IN ('pg_trgm', 'unaccent')
          AND installed_version IS NULL
          AND EXISTS (SELECT FROM pg_namespace WHERE nspname = 'public' AND has_schema_privilege(oid, 'CREATE'))
    LOOP
        BEGIN
            EXECUTE format('CREATE EXTENSION %I SCHEMA public', wanted);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'The extension % was not created: %', wanted, SQLERRM;
        END;
    END LOOP;
END
$$;

-- name: find_migrations_table
-- Whether the schema of new tables has the record of migrations; other schemas on the search path do not count.
SELECT to_regclass(format('%I.system_migrations', current_schema())) IS NOT NULL;

-- name: create_migrations_table
-- The record of migrations, created before the first migration is applied.
CREATE TABLE system_migrations (
    number integer NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_migrations_pkey PRIMARY KEY (number)
);
COMMENT ON TABLE system_migrations IS 'The migrations that made this schema, in order';
COMMENT ON COLUMN system_migrations.sha256 IS 'Of the file as it was applied';

-- name: list_migrations
-- The applied migrations, in order.
SELECT number, name, sha256
FROM system_migrations
ORDER BY number;

-- name: record_migration
-- Records the migration that was just applied.
INSERT INTO system_migrations (number, name, sha256)
VALUES ($1, $2, $3);

-- name: find_queue_tables
-- Whether the current schema has the record of the queue's migrations, and whether it has a queue at all.
SELECT
    to_regclass(format('%I.system_queue', current_schema())) IS NOT NULL,
    to_regclass(format('%I.procrastinate_jobs', current_schema())) IS NOT NULL;

-- name: create_queue_table
-- The record of the queue's migrations, created before the first of them is applied.
CREATE TABLE IF NOT EXISTS system_queue (
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_queue_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE system_queue IS 'The migrations of the package procrastinate that its tables hold, from its schema or one by one';

-- name: list_queue_migrations
-- The migrations of the queue that were applied.
SELECT name
FROM system_queue;

-- name: record_queue_migrations
-- Records migrations of the queue that were just applied.
INSERT INTO system_queue (name)
SELECT unnest($1::text[]);

-- name: needs_unaccent
-- Whether searches still distinguish accents although the extension that removes them is installed by now.
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'unaccent')
   AND pg_get_functiondef(to_regprocedure('system_fold_letters(text)')::oid) NOT LIKE '%unaccent%';

-- name: ignore_accents
-- Replaces the functions by which searches compare texts, and rebuilds the indexes of searches, which hold results.
CALL system_define_folding();
