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
    coalesce(pg_get_functiondef(to_regprocedure('system_fold(text)')::oid) NOT LIKE '%unaccent%', FALSE) AS keeps_accents;
