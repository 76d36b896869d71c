-- name: examine_server
-- What `cms doctor` tells about a server, in one row. The connections are those that this account may hold at once.
SELECT
    current_setting('server_version_num')::integer AS version,
    current_setting('server_encoding') AS encoding,
    least(
        current_setting('max_connections')::integer
            - current_setting('superuser_reserved_connections')::integer
            - coalesce(current_setting('reserved_connections', true)::integer, 0),
        (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()),
        (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user)
    ) AS connections,
    ARRAY(SELECT extname::text FROM pg_extension) AS installed,
    ARRAY(SELECT name::text FROM pg_available_extensions) AS available,
    coalesce(pg_get_functiondef(to_regprocedure('system_fold_letters(text)')::oid) NOT LIKE '%unaccent%', FALSE) AS keeps_accents;

-- name: record_json_paths
-- Records paths ($2) of collections ($1) by which reads have searched or sorted today, and how often ($3).
INSERT INTO system_json_paths (collection, path, uses)
SELECT collection, path, uses
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS searched (collection, path, uses)
ORDER BY collection, path  -- so that processes take the rows in one order
ON CONFLICT (collection, path) DO UPDATE
SET
    last_used = excluded.last_used,
    uses = greatest(system_json_paths.uses, excluded.uses)
WHERE system_json_paths.last_used < excluded.last_used
   OR system_json_paths.uses < excluded.uses;

-- name: trim_json_paths
-- Keeps the $2 most used paths of each of the collections in $1, and no path that has not been used for long.
DELETE FROM system_json_paths
WHERE last_used < CURRENT_DATE - 90
   OR (collection, path) IN (
       SELECT collection, path
       FROM (
           SELECT
               collection,
               path,
               row_number() OVER (PARTITION BY collection ORDER BY uses DESC, last_used DESC, path) AS position
           FROM system_json_paths
           WHERE collection = ANY ($1::text[])
       ) AS ranked
       WHERE position > $2::bigint
   );

-- name: recorded_json_paths
-- The recorded paths, and the last day on which each was used.
SELECT collection, path, last_used::text
FROM system_json_paths
ORDER BY collection, path;

-- name: find_tables_behind
-- The tables of later schemas on the search path that have the name of a table or collection of this installation:
-- PostgreSQL finds them where the installation's own table is missing.
SELECT format('%I.%I', behind.relnamespace::regnamespace::name, behind.relname)
FROM pg_class AS behind
WHERE behind.relnamespace::regnamespace::name = ANY (current_schemas(FALSE))
  AND behind.relnamespace <> current_schema()::regnamespace
  AND behind.relkind IN ('r', 'p', 'f', 'v', 'm')
  AND behind.relname IN (
      SELECT own.relname
      FROM pg_class AS own
      WHERE own.relnamespace = current_schema()::regnamespace
        AND own.relkind IN ('r', 'p', 'f', 'v', 'm')
      UNION ALL
      SELECT collection
      FROM system_collections
  )
ORDER BY 1;
