-- name: find_project
-- What anybody may know of the project, and the version of the database server.
SELECT
    project_name,
    project_descriptor,
    project_color,
    default_language,
    current_setting('server_version')
FROM system_settings;

-- name: make_partitions
-- Activity and revisions of the coming months have their place before they come.
SELECT system_make_partitions($1::integer);

-- name: prune_history
-- Activity and revisions of months that ended before so long ago are no longer kept.
SELECT dropped, deleted
FROM system_prune_history($1::interval);

-- name: limit_time
-- The statements of the rest of this transaction may take so many milliseconds each.
SELECT set_config('statement_timeout', $1::text, TRUE);
