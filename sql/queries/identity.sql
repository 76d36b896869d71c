-- name: find_actor
-- The caller behind a user's id or a static token's digest, beside the counters; no user when it may not act.
-- An access token names its session, which must be there: a changed password deletes it and, because it changes
-- system_users, moves the access counter as well, so that callers who were found before are looked up again.
-- Logout and the end of old sessions move no counter: that would have every process load everything again.
SELECT
    version.structure,
    version.access,
    users.id::text,
    users.role::text,
    coalesce(roles.admin_access, FALSE) AS admin
FROM system_version AS version
LEFT JOIN system_users AS users
    ON (users.id = $1::uuid OR users.token = $2::text)
    AND users.status = 'active'
    AND (
        $3::uuid IS NULL
        OR EXISTS (
            SELECT
            FROM system_sessions AS sessions
            WHERE sessions.id = $3::uuid
              AND sessions."user" = users.id
        )
    )
LEFT JOIN system_roles AS roles ON roles.id = users.role;

-- name: move_structure
-- Takes the row lock that lets one change of structure run at a time, and tells every process of it.
UPDATE system_version
SET structure = structure + 1;
