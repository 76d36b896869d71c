-- name: lock_accounts
-- Two processes that start together make one first admin.
SELECT pg_advisory_xact_lock(hashtextextended('system_users', 0));

-- name: find_active_admin
-- Any active user of a role with admin_access.
SELECT users.id::text
FROM system_users AS users
JOIN system_roles AS roles ON roles.id = users.role
WHERE roles.admin_access
  AND users.status = 'active'
LIMIT 1;

-- name: ensure_admin_role
-- The role of that name with admin_access, made when it is missing.
WITH present AS (
    SELECT id
    FROM system_roles
    WHERE name = $1::text
      AND admin_access
    ORDER BY id
    LIMIT 1
),
made AS (
    INSERT INTO system_roles (name, icon, admin_access, app_access)
    SELECT $1::text, 'verified', TRUE, TRUE
    WHERE NOT EXISTS (SELECT FROM present)
    RETURNING id
)
SELECT id::text FROM present
UNION ALL
SELECT id::text FROM made;

-- name: find_role
-- A role by its id or its name.
SELECT id::text
FROM system_roles
WHERE id::text = $1::text
   OR name = $1::text
ORDER BY id::text = $1::text DESC, id
LIMIT 1;

-- name: insert_user
-- A new active user; nothing when the address is taken.
INSERT INTO system_users (email, password, role)
VALUES ($1::text, $2::text, $3::uuid)
ON CONFLICT DO NOTHING
RETURNING id::text;

-- name: set_password
-- A new password ends the sessions that were opened with the old one.
WITH changed AS (
    UPDATE system_users
    SET password = $2::text, failed_logins = 0
    WHERE lower(email) = lower($1::text)
    RETURNING id
),
ended AS (
    DELETE FROM system_sessions
    WHERE "user" IN (SELECT id FROM changed)
)
SELECT id::text FROM changed;

-- name: set_token
-- The digest of a new static token, in place of the one before.
UPDATE system_users
SET token = $2::text
WHERE lower(email) = lower($1::text)
RETURNING id::text;
