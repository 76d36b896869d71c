-- name: find_account
-- The user of a login, whatever the case of the address.
SELECT
    users.id::text,
    users.status,
    users.password,
    users.tfa_secret,
    coalesce(users.login_after > now(), FALSE)
FROM system_users AS users
WHERE lower(users.email) = lower($1::text)
  AND users.provider = 'default';

-- name: find_account_of
-- The same by id, for a user who is logged in already.
SELECT
    users.id::text,
    users.status,
    users.password,
    users.tfa_secret,
    coalesce(users.login_after > now(), FALSE)
FROM system_users AS users
WHERE users.id = $1::uuid;

-- name: count_failure
-- One more failed login, and whether that is as many as the settings bear; parallel ones wait for each other here.
-- The commit does not wait for the disk: where there is nobody to count for, there is nothing to wait for.
WITH hasty AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', TRUE)
)
UPDATE system_users
SET failed_logins = failed_logins + 1
FROM hasty
WHERE id = $1::uuid
  AND status = 'active'
RETURNING failed_logins >= (SELECT auth_login_attempts FROM system_settings);

-- name: suspend_or_slow
-- What becomes of an active user with too many failed logins: suspended, or, where no other active administrator
-- would be left, made to wait twice as long after each failure, for half a minute at most. A suspension ends sessions.
WITH RECURSIVE admins (id) AS (
    SELECT id
    FROM system_roles
    WHERE admin_access
    UNION
    SELECT roles.id
    FROM system_roles AS roles
    JOIN admins ON admins.id = roles.parent
),
needed AS (
    SELECT users.id
    FROM system_users AS users
    WHERE users.id = $1::uuid
      AND users.role IN (SELECT id FROM admins)
      AND NOT EXISTS (
          SELECT
          FROM system_users AS others
          WHERE others.id <> users.id
            AND others.status = 'active'
            AND others.role IN (SELECT id FROM admins)
      )
),
changed AS (
    UPDATE system_users AS users
    SET status = CASE WHEN needed.id IS NULL THEN 'suspended' ELSE users.status END,
        login_after = CASE WHEN needed.id IS NOT NULL THEN
            now() + interval '1 second' * least(30, 2 ^ least(5, users.failed_logins - settings.auth_login_attempts))
        END
    FROM system_settings AS settings
    LEFT JOIN needed ON TRUE
    WHERE users.id = $1::uuid
      AND users.status = 'active'
      AND users.failed_logins >= settings.auth_login_attempts
    RETURNING users.id, users.status
),
ended AS (
    DELETE FROM system_sessions
    WHERE "user" IN (SELECT id FROM changed WHERE status = 'suspended')
)
SELECT status FROM changed;

-- name: open_session
-- A login: only the digest of its token is stored.
INSERT INTO system_sessions (id, "user", token, mode, expires, ip, user_agent, origin)
VALUES ($1::uuid, $2::uuid, $3::text, $4::text, $5::timestamptz, $6::text, $7::text, $8::text);

-- name: note_access
-- When a user was last here, and a hash by newer parameters where there is one; failures are forgotten. No counter
-- moves for it. Nothing when the password that let the user in is no longer the one there is: whoever changed it
-- meanwhile has ended the sessions that were there, and not this one.
UPDATE system_users
SET last_access = now(),
    failed_logins = 0,
    login_after = NULL,
    password = coalesce($3::text, password)
WHERE id = $1::uuid
  AND status = 'active'
  AND password = $2::text
RETURNING id::text;

-- name: end_expired_sessions_of
-- At a login, so that nobody's sessions pile up. Not before their access tokens have ended, which name them.
DELETE FROM system_sessions
WHERE "user" = $1::uuid
  AND expires < now() - $2::interval;

-- name: end_expired_sessions
-- Those of users who never came back, once their access tokens have ended as well; returns how many.
WITH ended AS (
    DELETE FROM system_sessions
    WHERE expires < now() - $1::interval
    RETURNING id
)
SELECT count(*)
FROM ended;

-- name: lock_session
-- A session with its user, locked so that of two refreshes at once one sees the other's token.
SELECT
    sessions.token,
    sessions.mode,
    sessions.expires > now() AND users.status = 'active',
    users.id::text
FROM system_sessions AS sessions
JOIN system_users AS users ON users.id = sessions."user"
WHERE sessions.id = $1::uuid
FOR UPDATE OF sessions;

-- name: renew_session
-- The next refresh token of a session, or the same token for longer.
UPDATE system_sessions
SET token = $2::text, expires = $3::timestamptz
WHERE id = $1::uuid;

-- name: end_session
-- Logout: nothing renews the session any more. It stays for the access token that names it, which lives to its end
-- in every process alike.
UPDATE system_sessions
SET expires = now()
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

-- name: end_sessions_of
-- All sessions of users, one of them excepted where it is named; the counter moves, so that access tokens end as well.
WITH ended AS (
    DELETE FROM system_sessions
    WHERE "user" = ANY ($1::uuid[])
      AND id IS DISTINCT FROM $2::uuid
    RETURNING id
)
UPDATE system_version
SET access = access + 1
WHERE EXISTS (SELECT FROM ended);

-- name: note_activity
-- What a user did to an account: login, logout, or a change of it.
INSERT INTO system_activity (action, "user", ip, user_agent, origin, collection, item)
VALUES ($1::text, $2::uuid, $3::text, $4::text, $5::text, 'system_users', $6::text);
