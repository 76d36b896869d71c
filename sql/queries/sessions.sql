-- name: find_user_by_email
-- The user of a login, whatever the case of the address.
SELECT
    users.id::text,
    users.role::text,
    users.status,
    coalesce(roles.admin_access, FALSE),
    coalesce(roles.app_access, FALSE),
    users.password
FROM system_users AS users
LEFT JOIN system_roles AS roles ON roles.id = users.role
WHERE lower(users.email) = lower($1::text)
  AND users.provider = 'default';

-- name: open_session
-- A login: only the digest of its refresh token is stored.
INSERT INTO system_sessions (id, "user", token, expires, ip, user_agent, origin)
VALUES ($1::uuid, $2::uuid, $3::text, $4::timestamptz, $5::text, $6::text, $7::text);

-- name: note_access
-- When a user was last here; no counter moves for it.
UPDATE system_users
SET last_access = now()
WHERE id = $1::uuid;

-- name: lock_session
-- A session with its user, locked so that of two refreshes at once one sees the other's token.
SELECT
    sessions.token,
    sessions.expires,
    users.id::text,
    users.role::text,
    users.status,
    coalesce(roles.admin_access, FALSE),
    coalesce(roles.app_access, FALSE)
FROM system_sessions AS sessions
JOIN system_users AS users ON users.id = sessions."user"
LEFT JOIN system_roles AS roles ON roles.id = users.role
WHERE sessions.id = $1::uuid
FOR UPDATE OF sessions;

-- name: renew_session
-- The next refresh token of a session; the one before is worth nothing from now on.
UPDATE system_sessions
SET token = $2::text, expires = $3::timestamptz
WHERE id = $1::uuid;

-- name: end_session
-- Logout, or the answer to a refresh token that was used twice.
DELETE FROM system_sessions
WHERE id = $1::uuid;
