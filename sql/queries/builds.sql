-- name: find_build
-- What the job $1 is to build: table, column and kind; nothing if that was withdrawn.
SELECT args #>> '{payload,collection}', args #>> '{payload,field}', args #>> '{payload,kind}'
FROM procrastinate_jobs
WHERE id = $1::bigint
  AND args #>> '{payload,collection}' IS NOT NULL;

-- name: find_builds_of_table
-- What a table was asked for: column and kind.
SELECT DISTINCT args #>> '{payload,field}', args #>> '{payload,kind}'
FROM procrastinate_jobs
WHERE queue_name = 'build'
  AND status IN ('todo', 'doing', 'failed')
  AND args #>> '{payload,collection}' = $1::text;

-- name: find_waiting_builds
-- The jobs that wait for a worker to build something of a table.
SELECT id
FROM procrastinate_jobs
WHERE queue_name = 'build'
  AND status = 'todo'
  AND args #>> '{payload,collection}' = $1::text
ORDER BY id;

-- name: forget_build
-- Removes the jobs for something that is there, but for $4; a running one ends by itself.
DELETE FROM procrastinate_jobs
WHERE queue_name = 'build'
  AND status <> 'doing'
  AND args #>> '{payload,collection}' = $1::text
  AND args #>> '{payload,field}' = $2::text
  AND args #>> '{payload,kind}' = $3::text
  AND id <> $4::bigint
RETURNING id;

-- name: is_build_waiting
-- Whether a job is about to build something. One that failed is forgotten: it is asked for anew.
WITH same AS MATERIALIZED (
    SELECT id, status, scheduled_at
    FROM procrastinate_jobs
    WHERE queue_name = 'build'
      AND args #>> '{payload,collection}' = $1::text
      AND args #>> '{payload,field}' = $2::text
      AND args #>> '{payload,kind}' = $3::text
),
forgotten AS (
    DELETE FROM procrastinate_jobs
    WHERE id IN (SELECT id FROM same WHERE status = 'failed')
)
SELECT EXISTS (
    SELECT FROM same WHERE status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= clock_timestamp())
);

-- name: withdraw_builds
-- Takes from the jobs of a table ($1) what they were to build of column $2, or of all, of kind $3, or of all. A running one
-- ends by itself.
UPDATE procrastinate_jobs
SET
    args = '{"payload": {}}',
    status = CASE WHEN status = 'doing' THEN status ELSE 'cancelled' END
WHERE queue_name = 'build'
  AND args #>> '{payload,collection}' = $1::text
  AND args #>> '{payload,field}' = coalesce($2::text, args #>> '{payload,field}')
  AND args #>> '{payload,kind}' = coalesce($3::text, args #>> '{payload,kind}');

-- name: rename_field_in_builds
-- Has the jobs of a renamed field build the same for its new name.
UPDATE procrastinate_jobs
SET args = jsonb_set(args, '{payload,field}', to_jsonb($3::text))
WHERE queue_name = 'build'
  AND args #>> '{payload,collection}' = $1::text
  AND args #>> '{payload,field}' = $2::text;

-- name: note_violation
-- Notes in a job the code of the error that stored rows are.
UPDATE procrastinate_jobs
SET args = jsonb_set(args, '{payload,code}', to_jsonb($2::text))
WHERE id = $1::bigint;

-- name: finish_waiting_job
-- Ends a job that still waits for a worker; one that succeeded leaves the queue.
WITH waiting AS MATERIALIZED (
    SELECT id
    FROM procrastinate_jobs
    WHERE id = $1::bigint
      AND status = 'todo'
    FOR UPDATE SKIP LOCKED  -- a worker is about to take a locked one
)
SELECT procrastinate_finish_job_v1(id, $2::procrastinate_job_status, $2::text = 'succeeded')::text
FROM waiting;

-- name: is_building
-- Whether the server builds an index of a table at this moment.
SELECT EXISTS (
    SELECT
    FROM pg_stat_progress_create_index
    WHERE datname = current_database()
      AND relid = to_regclass(quote_ident($1::text))
);

-- name: is_repeated
-- Whether an older valid index of a table ($1) is the same as one of it ($2), but for the name.
SELECT EXISTS (
    SELECT
    FROM pg_index AS new
    JOIN pg_class AS class ON class.oid = new.indexrelid
    JOIN pg_index AS older ON older.indrelid = new.indrelid
    WHERE new.indrelid = to_regclass(quote_ident($1::text))
      AND class.relname = $2::text
      AND older.indexrelid < new.indexrelid
      AND older.indisvalid
      AND older.indisunique = new.indisunique
      AND older.indnkeyatts = new.indnkeyatts
      AND older.indkey::text = new.indkey::text
      AND older.indclass::text = new.indclass::text
      AND older.indcollation::text = new.indcollation::text
      AND older.indoption::text = new.indoption::text
      AND pg_get_expr(older.indexprs, older.indrelid) IS NOT DISTINCT FROM pg_get_expr(new.indexprs, new.indrelid)
      AND pg_get_expr(older.indpred, older.indrelid) IS NOT DISTINCT FROM pg_get_expr(new.indpred, new.indrelid)
);

-- name: find_built_index
-- Of an index ($2) of a table ($1): the column, which may have been renamed since it was built, what the column was asked
-- for, and whether a constraint, or the primary key, makes it unique.
SELECT
    attribute.attname,
    ARRAY(
        SELECT args #>> '{payload,kind}'
        FROM procrastinate_jobs
        WHERE queue_name = 'build'
          AND status IN ('todo', 'doing', 'failed')
          AND args #>> '{payload,collection}' = $1::text
          AND args #>> '{payload,field}' = attribute.attname
    ) AS kinds,
    EXISTS (
        SELECT
        FROM pg_constraint
        WHERE conrelid = attribute.attrelid
          AND contype IN ('p', 'u')
          AND conkey = ARRAY[attribute.attnum]
    ) AS has_constraint
FROM pg_class AS class
JOIN pg_depend AS depend  -- an index over an expression names its columns only here
    ON depend.classid = 'pg_class'::regclass
    AND depend.objid = class.oid
    AND depend.refclassid = 'pg_class'::regclass
    AND depend.refobjid = to_regclass(quote_ident($1::text))
    AND depend.refobjsubid > 0
JOIN pg_attribute AS attribute ON attribute.attrelid = depend.refobjid AND attribute.attnum = depend.refobjsubid
WHERE class.relname = $2::text
  AND class.relnamespace = current_schema()::regnamespace;

-- name: find_builds
-- What collections of $1 were asked for: collection, field and kind; how far that is, the part that the server has done of
-- what it builds at this moment, and the code of the error that stored rows are. A table is read twice for an index, to
-- build and to validate it; how far the check of a foreign key is, PostgreSQL does not tell.
SELECT DISTINCT ON (collection, field, kind)
    collection,
    field,
    kind,
    CASE WHEN running.done IS NOT NULL THEN 'building' WHEN is_queued THEN 'waiting' ELSE 'failed' END AS state,
    coalesce(running.done, 0)::text AS done,
    code
FROM (
    SELECT
        id,
        args #>> '{payload,collection}' AS collection,
        args #>> '{payload,field}' AS field,
        args #>> '{payload,kind}' AS kind,
        args #>> '{payload,code}' AS code,
        status <> 'failed' AS is_queued
    FROM procrastinate_jobs
    WHERE queue_name = 'build'
      AND status IN ('todo', 'doing', 'failed')
      AND args #>> '{payload,collection}' = ANY ($1::text[])
) AS build
LEFT JOIN LATERAL (
    SELECT
        CASE
            WHEN phase LIKE 'building%' THEN 0.8 * coalesce(blocks_done / nullif(blocks_total, 0)::double precision, 0)
            WHEN phase LIKE 'index validation%' OR phase LIKE 'waiting for old%' THEN 0.9
            WHEN phase LIKE 'waiting for writers before validation%' THEN 0.8
            ELSE 0
        END AS done
    FROM pg_stat_progress_create_index AS progress
    JOIN pg_index AS index ON index.indexrelid = progress.index_relid
    JOIN pg_depend AS depend  -- an index over an expression names its columns only here
        ON depend.classid = 'pg_class'::regclass
        AND depend.objid = progress.index_relid
        AND depend.refclassid = 'pg_class'::regclass
        AND depend.refobjid = progress.relid
        AND depend.refobjsubid > 0
    JOIN pg_attribute AS attribute ON attribute.attrelid = depend.refobjid AND attribute.attnum = depend.refobjsubid
    WHERE datname = current_database()
      AND progress.relid = to_regclass(quote_ident(collection))
      AND attribute.attname = field
      AND kind <> 'foreign_key'
      AND index.indisunique = (kind = 'unique')
    UNION ALL
    SELECT 0
    FROM pg_stat_activity AS activity
    JOIN pg_locks AS lock ON lock.pid = activity.pid AND lock.relation = to_regclass(quote_ident(collection))
    WHERE kind = 'foreign_key'
      AND datname = current_database()
      AND state = 'active'
      AND starts_with(
          query, 'ALTER TABLE ONLY "' || replace(collection, '"', '""') || '" VALIDATE CONSTRAINT '
      )
    LIMIT 1
) AS running ON TRUE
ORDER BY collection, field, kind, is_queued DESC, id DESC;
