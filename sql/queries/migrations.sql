-- name: lock_migrations
-- Lets one process at a time migrate, until its transaction ends; a lock of the session would be left behind by a pooler.
SELECT pg_advisory_xact_lock(hashtextextended('system_migrations', 0));

-- name: find_migrations_table
-- Tells whether the schema that new tables land in records migrations; others on the search path do not count.
SELECT to_regclass(format('%I.system_migrations', current_schema())) IS NOT NULL;

-- name: create_migrations_table
-- The record of migrations is there before the first of them.
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
-- What was applied, in order.
SELECT number, name, sha256
  FROM system_migrations
 ORDER BY number;

-- name: record_migration
-- Number, name and hash of what was just applied.
INSERT INTO system_migrations (number, name, sha256)
VALUES ($1, $2, $3);

-- name: find_queue_tables
-- Tells whether the current schema records what was applied of the queue's package, and whether it has a queue.
SELECT
    to_regclass(format('%I.system_queue', current_schema())) IS NOT NULL,
    to_regclass(format('%I.procrastinate_jobs', current_schema())) IS NOT NULL;

-- name: create_queue_table
-- The record of what was applied of the queue's package is there before the first of it.
CREATE TABLE IF NOT EXISTS system_queue (
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_queue_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE system_queue IS 'The migrations of the package procrastinate that its tables hold, from its schema or one by one';

-- name: list_queue_migrations
-- What the queue's tables hold.
SELECT name
  FROM system_queue;

-- name: record_queue_migrations
-- What was just applied.
INSERT INTO system_queue (name)
SELECT unnest($1::text[]);

-- name: find_kept_accents
-- Tells whether searches still tell accents apart although the extension that takes them away is there by now.
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'unaccent')
   AND pg_get_functiondef(to_regprocedure('system_fold(text)')::oid) NOT LIKE '%unaccent%';

-- name: take_accents
-- Lets searches compare texts without accents from now on, as migration 0002 does where it finds the extension, and
-- makes the indexes of searches anew, which hold what was compared before.
DO $$
DECLARE
    home text := (
        SELECT quote_ident(nspname)
        FROM pg_extension
        JOIN pg_namespace ON pg_namespace.oid = extnamespace
        WHERE extname = 'unaccent'
    );
    index regclass;
BEGIN
    EXECUTE 'CREATE OR REPLACE FUNCTION system_fold(text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN '
        || format('lower(%s.unaccent(''%s.unaccent'', $1))', home, home);
    FOR index IN
        SELECT indexrelid FROM pg_index WHERE pg_get_expr(indexprs, indrelid) LIKE 'system_fold(%'
    LOOP
        EXECUTE format('REINDEX INDEX %s', index);
    END LOOP;
END
$$;
