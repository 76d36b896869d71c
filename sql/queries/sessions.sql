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
-- When a user was last here; no counter moves for it. Nothing when the password that let the user in is no
-- longer the one there is: whoever changed it meanwhile has ended the sessions that were there, and not this one.
UPDATE system_users
SET last_access = now()
WHERE id = $1::uuid
  AND status = 'active'
  AND password = $2::text
RETURNING id::text;

-- name: end_expired_sessions_of
-- At a login, so that nobody's sessions pile up.
DELETE FROM system_sessions
WHERE "user" = $1::uuid
  AND expires < now();

-- name: end_expired_sessions
-- Those of users who never came back; returns how many.
WITH ended AS (
    DELETE FROM system_sessions
    WHERE expires < now()
    RETURNING id
)
SELECT count(*)
FROM ended;

-- name: lock_session
-- A session with its user, locked so that of two refreshes at once one sees the other's token.
SELECT
    sessions.token,
    sessions.previous,
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
-- The next refresh token of a session; the one before is worth nothing from now on, and known when it comes again.
UPDATE system_sessions
SET token = $2::text, previous = token, expires = $3::timestamptz
WHERE id = $1::uuid;

-- name: end_session
-- Logout: the access token lives on until its end, which is near.
DELETE FROM system_sessions
WHERE id = $1::uuid;

-- name: end_stolen_session
-- The answer to a refresh token that was used twice. The counter moves, so that the access token ends as well.
WITH ended AS (
    DELETE FROM system_sessions
    WHERE id = $1::uuid
    RETURNING id
)
UPDATE system_version
SET access = access + 1
WHERE EXISTS (SELECT FROM ended);
