-- name: find_project
-- The public settings of the project, and the version of the database server.
SELECT
    project_name,
    project_descriptor,
    project_color,
    default_language,
    current_setting('server_version')
FROM system_settings;

-- name: make_partitions
-- Creates the partitions of activity and revisions for the next $1 months; returns how many it created.
SELECT system_make_partitions($1::integer);

-- name: prune_history
-- Drops the months of activity and revisions that ended longer than $1 ago; returns their names, and how many rows
-- without a month were deleted.
SELECT dropped, deleted
FROM system_prune_history($1::interval);

-- name: find_session_settings
-- The values of the settings $1 in this session, in their base units.
SELECT lower(name), setting
FROM pg_settings
WHERE lower(name) = ANY ($1::text[]);

-- name: lift_time_limit
-- The statements of the rest of this transaction may take as long as they need.
SET LOCAL statement_timeout = 0;

-- name: limit_time
-- The statements of the rest of this transaction may take $1 milliseconds each.
SELECT set_config('statement_timeout', $1::text, TRUE);

-- name: lift_time_limits
-- Lets this session take as long as it needs: those limits that the server, or the address, sets and its version has.
SELECT set_config(name, '0', FALSE)
FROM pg_settings
WHERE name IN (
    'statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout'
);

-- name: find_schema
-- The schema in which this session finds and makes tables.
SELECT current_schema()::text AS current_schema;

-- name: find_installation
-- The schema in which this session finds and makes tables, and whether there is an installation in it.
SELECT
    current_schema()::text,
    to_regclass(format('%I.system_migrations', current_schema())) IS NOT NULL;
