-- name: find_actor
-- The caller behind a user's id or a static token's digest, beside the counters; no user when it may not act.
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
LEFT JOIN system_roles AS roles ON roles.id = users.role;

-- name: move_structure
-- Takes the row lock that lets one change of structure run at a time, and tells every process of it.
UPDATE system_version
SET structure = structure + 1;
