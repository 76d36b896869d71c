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

-- name: count_failed_login
-- Counts a failed login, and returns whether the limit of the settings is reached. Failures at once wait for each other.
-- The commit does not wait for the disk: for an unknown address nothing is written, and the time must be the same.
WITH without_sync AS MATERIALIZED (  -- in the FROM list below, or it would not be run
    SELECT set_config('synchronous_commit', 'off', TRUE)
)
UPDATE system_users
SET failed_logins = failed_logins + 1
FROM without_sync
WHERE id = $1::uuid
  AND status = 'active'
RETURNING failed_logins >= (SELECT auth_login_attempts FROM system_settings);

-- name: suspend_or_delay
-- Suspends an active user with too many failed logins, which ends the sessions. The last active administrator is not
-- suspended but has to wait: twice as long after each failure, half a minute at most.
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
-- Inserts the session of a login; only the digest of its token is stored.
INSERT INTO system_sessions (id, "user", token, mode, expires, ip, user_agent, origin, logout_url, provider_token)
VALUES (
    $1::uuid, $2::uuid, $3::text, $4::text, $5::timestamptz, $6::text, $7::text, $8::text, $9::text, $10::text
);

-- name: record_login
-- Records when a user logged in, and a new hash of the password where the old one has older parameters; resets the
-- failed logins. It moves no counter. It changes nothing if the password is no longer $2: whoever has changed it
-- meanwhile has ended the sessions that existed, and this one must not begin.
UPDATE system_users
SET last_access = date_trunc('milliseconds', now()),
    failed_logins = 0,
    login_after = NULL,
    password = coalesce($3::text, password)
WHERE id = $1::uuid
  AND status = 'active'
  AND password = $2::text
RETURNING id::text;

-- name: end_expired_sessions_of
-- Deletes a user's expired sessions at a login, so that they do not pile up. They stay as long as access tokens may
-- still name them.
DELETE FROM system_sessions
WHERE "user" = $1::uuid
  AND expires < now() - $2::interval;

-- name: end_expired_sessions
-- Deletes the expired sessions of all users, as long after their end as access tokens live; returns how many.
WITH ended AS (
    DELETE FROM system_sessions
    WHERE expires < now() - $1::interval
    RETURNING id
)
SELECT count(*)
FROM ended;

-- name: lock_session
-- Locks a session and returns it with its user, NULL for that of a share: of two refreshes at once, one sees the
-- other's token. Tells whether a token ($2, its digest) is the current one, or was for the first time used within the
-- last 10 seconds.
SELECT
    sessions.token = $2::text,
    coalesce((sessions.used_tokens ->> $2::text)::timestamptz > clock_timestamp() - interval '10 seconds', FALSE),
    sessions.expires > now() AND coalesce(users.status = 'active', TRUE),
    sessions.mode,
    users.id::text,
    sessions.logout_url
FROM system_sessions AS sessions
LEFT JOIN system_users AS users ON users.id = sessions."user"
WHERE sessions.id = $1::uuid
FOR UPDATE OF sessions;

-- name: renew_session
-- Sets the next refresh token of a session and its expiry, which for a share is its end at the latest. A session cookie
-- keeps its token; of others the one before counts as used, beside those of the last 10 seconds.
UPDATE system_sessions
SET token = $2::text,
    used_tokens = CASE WHEN token = $2::text THEN used_tokens ELSE (
        SELECT coalesce(jsonb_object_agg(digest, used), '{}') || jsonb_build_object(token, clock_timestamp())
        FROM jsonb_each_text(used_tokens) AS former (digest, used)
        WHERE used::timestamptz > clock_timestamp() - interval '10 seconds'
    ) END,
    expires = least($3::timestamptz, (SELECT date_end FROM system_shares WHERE id = system_sessions.share))
WHERE id = $1::uuid;

-- name: end_session
-- Ends a session at logout, so that nothing renews it. The row stays for its access token, which is valid until it
-- expires, in every process alike.
UPDATE system_sessions
SET expires = now()
WHERE id = $1::uuid;

-- name: end_stolen_session
-- Deletes a session whose refresh token ($2, its digest) was used before, and moves the counter, which ends its access
-- token as well. One that has its current token stays: it has ended by itself.
WITH ended AS (
    DELETE FROM system_sessions
    WHERE id = $1::uuid
      AND token <> $2::text
    RETURNING id
)
UPDATE system_version
SET access = access + 1
WHERE EXISTS (SELECT FROM ended);

-- name: end_sessions_of
-- Deletes the sessions of a user, and moves the counter, which ends their access tokens as well.
WITH ended AS (
    DELETE FROM system_sessions
    WHERE "user" = $1::uuid
    RETURNING id
)
UPDATE system_version
SET access = access + 1
WHERE EXISTS (SELECT FROM ended);

-- name: record_account_activity
-- Records a login, a logout, or a change of an account; the comment of an external login names its provider.
INSERT INTO system_activity (action, "user", ip, user_agent, origin, collection, item, comment)
VALUES ($1::text, $2::uuid, $3::text, $4::text, $5::text, 'system_users', $6::text, $7::text);
