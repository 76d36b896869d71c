-- name: lock_accounts
-- Of two processes that start together, only one creates the first admin.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' system_users', 0));

-- name: find_admin
-- One user of a role with admin_access, its own or a parent's. $1 restricts it to these users, $2 to active ones.
WITH RECURSIVE granting (id) AS (
    SELECT id
    FROM system_roles
    WHERE admin_access
    UNION
    SELECT roles.id
    FROM granting
    JOIN system_roles AS roles ON roles.parent = granting.id
)
SELECT users.id::text
FROM system_users AS users
JOIN granting ON granting.id = users.role
WHERE ($1::uuid[] IS NULL OR users.id = ANY ($1::uuid[]))
  AND (users.status = 'active' OR NOT $2::boolean)
LIMIT 1;

-- name: find_networks_of_admins
-- For each role of active administrators the `ip_access` of it and its parents, as a JSON array.
WITH RECURSIVE granting (id) AS (
    SELECT id
    FROM system_roles
    WHERE admin_access
    UNION
    SELECT roles.id
    FROM granting
    JOIN system_roles AS roles ON roles.parent = granting.id
),
chain (role, id) AS (
    SELECT id, id
    FROM granting
    WHERE EXISTS (SELECT FROM system_users AS users WHERE users.role = granting.id AND users.status = 'active')
    UNION
    SELECT chain.role, roles.parent
    FROM chain
    JOIN system_roles AS roles ON roles.id = chain.id
)
SELECT coalesce(json_agg(roles.ip_access) FILTER (WHERE roles.ip_access IS NOT NULL), '[]')::text
FROM chain
JOIN system_roles AS roles ON roles.id = chain.id
GROUP BY chain.role;

-- name: find_registering_admins
-- The role of public registration, or a parent of it, if that has admin_access: registering must not make admins.
WITH RECURSIVE line (id) AS (
    SELECT public_registration_role
    FROM system_settings
    UNION
    SELECT roles.parent
    FROM line
    JOIN system_roles AS roles ON roles.id = line.id
)
SELECT roles.id::text
FROM line
JOIN system_roles AS roles ON roles.id = line.id
WHERE roles.admin_access;

-- name: find_role_cycle
-- A role that is among its own parents, if there is one.
WITH RECURSIVE line (start, id) AS (
    SELECT id, parent
    FROM system_roles
    WHERE parent IS NOT NULL
    UNION
    SELECT line.start, roles.parent
    FROM line
    JOIN system_roles AS roles ON roles.id = line.id
    WHERE roles.parent IS NOT NULL
)
SELECT start::text
FROM line
WHERE start = id
LIMIT 1;

-- name: find_permissions
-- The rules, fields and presets of permissions as text, which the service checks when they are saved.
SELECT collection, action, permissions::text, fields::text, presets::text
FROM system_permissions
WHERE id = ANY ($1::integer[]);

-- name: end_other_sessions
-- Deletes the sessions of users except one ($2), the session of the caller.
DELETE FROM system_sessions
WHERE "user" = ANY ($1::uuid[])
  AND id IS DISTINCT FROM $2::uuid;

-- name: end_sessions_of_new_addresses
-- Deletes the sessions of users ($1) who are about to get another address ($2), except one ($3), the session of the caller.
DELETE FROM system_sessions
USING unnest($1::uuid[], $2::text[]) AS changed ("user", email)
JOIN system_users AS users ON users.id = changed."user"
WHERE system_sessions."user" = users.id
  AND users.email IS DISTINCT FROM changed.email
  AND system_sessions.id IS DISTINCT FROM $3::uuid;

-- name: ensure_admin_role
-- The role of a name with admin_access, and whether it was missing and had to be created.
WITH present AS (
    SELECT id
    FROM system_roles
    WHERE name = $1::text
      AND admin_access
    ORDER BY id
    LIMIT 1
),
created AS (
    INSERT INTO system_roles (name, icon, admin_access, app_access)
    SELECT $1::text, 'verified', TRUE, TRUE
    WHERE NOT EXISTS (SELECT FROM present)
    RETURNING id
)
SELECT id::text, FALSE FROM present
UNION ALL
SELECT id::text, TRUE FROM created;

-- name: find_role
-- A role by its id or its name. An id comes first: a role may have another role's id as its name.
SELECT id::text
FROM system_roles
WHERE id::text = $1::text
   OR name = $1::text
ORDER BY id::text = $1::text DESC, id
LIMIT 1;

-- name: insert_user
-- Inserts an active user; returns no row if the address is taken.
INSERT INTO system_users (email, password, role)
VALUES ($1::text, $2::text, $3::uuid)
ON CONFLICT DO NOTHING
RETURNING id::text;

-- name: set_password
-- Sets a password on the command line. That ends the sessions opened with the old one, and the wait after failed logins.
WITH changed AS (
    UPDATE system_users
    SET password = $2::text, failed_logins = 0, login_after = NULL
    WHERE lower(email) = lower($1::text)
    RETURNING id
),
ended AS (
    DELETE FROM system_sessions
    WHERE "user" IN (SELECT id FROM changed)
)
SELECT id::text FROM changed;

-- name: set_token
-- Replaces the digest of a user's static token.
UPDATE system_users
SET token = $2::text
WHERE lower(email) = lower($1::text)
RETURNING id::text;

-- name: lock_account
-- Locks a user's account until the transaction ends, so that of two changes at once one sees the other's.
SELECT id::text, email, status, password, unverified
FROM system_users
WHERE id = $1::uuid
FOR UPDATE;

-- name: change_password
-- Sets a new password and makes the user active; another statement ends the sessions.
UPDATE system_users
SET password = $2::text,
    status = 'active',
    failed_logins = 0,
    login_after = NULL,
    last_access = date_trunc('milliseconds', now())
WHERE id = $1::uuid;

-- name: find_active_account
-- The user to whom a password link may be sent: active, and with a password kept by this service.
SELECT id::text, email, password
FROM system_users
WHERE lower(email) = lower($1::text)
  AND status = 'active'
  AND provider = 'default';

-- name: find_invited
-- Locks and returns the users of these addresses, and whether they have been invited and have not accepted.
SELECT id::text, email, status = 'invited'
FROM system_users
WHERE lower(email) IN (SELECT lower(email) FROM unnest($1::text[]) AS email)
ORDER BY id
FOR UPDATE;

-- name: invite_users
-- Inserts invited users, or gives another role to those already invited. An address with an account is left out.
INSERT INTO system_users (email, role, status)
SELECT DISTINCT ON (lower(email)) email, $2::uuid, 'invited'
FROM unnest($1::text[]) AS email
ORDER BY lower(email)
ON CONFLICT (lower(email)) DO UPDATE
SET role = excluded.role
WHERE system_users.status = 'invited'
RETURNING id::text, email, password;

-- name: find_registration
-- The settings of public registration, and the password policy.
SELECT
    public_registration,
    public_registration_role::text,
    public_registration_verify_email,
    public_registration_email_filter::text,
    auth_password_policy
FROM system_settings;

-- name: find_password_policy
-- The regular expression that new passwords have to match.
SELECT auth_password_policy
FROM system_settings;

-- name: find_other_hash_prefixes
-- How the hashes of passwords begin that do not begin with $1: with argon2's version and parameters. The last of them
-- is p with one digit or two. A regular expression would take five times as long.
SELECT DISTINCT rtrim(left(stored.password, strpos(stored.password, ',p=') + 4), '$')
FROM (
    SELECT password FROM system_users
    UNION ALL
    SELECT password FROM system_shares
) AS stored
WHERE NOT starts_with(stored.password, $1::text);

-- name: find_registered_password
-- The password of a registration whose link has not been followed yet.
SELECT password
FROM system_users
WHERE lower(email) = lower($1::text)
  AND status = 'draft'
  AND unverified;

-- name: find_registered
-- Locks and returns a registration whose link has not been followed yet.
SELECT id::text
FROM system_users
WHERE lower(email) = lower($1::text)
  AND status = 'draft'
  AND unverified
FOR UPDATE;

-- name: register_user
-- Inserts a user who registers, or replaces a registration whose link has not been followed: the older link ends.
-- Unless the password is that of the earlier registration ($7), nobody can tell which of the two owns the address. Then
-- no password is stored, and the owner asks for one by mail. Returns no row if the address belongs to an account.
INSERT INTO system_users (email, password, first_name, last_name, role, status, unverified)
VALUES (
    $1::text,
    $2::text,
    $3::text,
    $4::text,
    $5::uuid,
    CASE WHEN $6::boolean THEN 'draft' ELSE 'active' END,
    $6::boolean
)
ON CONFLICT (lower(email)) DO UPDATE
SET password = CASE
        WHEN NOT $6::boolean OR system_users.password = $7::text THEN excluded.password
    END,
    email = excluded.email,
    first_name = excluded.first_name,
    last_name = excluded.last_name,
    role = excluded.role,
    status = excluded.status,
    unverified = excluded.unverified
WHERE system_users.status = 'draft'
  AND system_users.unverified
RETURNING id::text, email, password;

-- name: reset_failed_logins
-- Resets the failed logins of users whom an administrator has made active.
UPDATE system_users
SET failed_logins = 0, login_after = NULL
WHERE id = ANY ($1::uuid[])
  AND (failed_logins > 0 OR login_after IS NOT NULL);

-- name: confirm_registrations
-- Marks accounts whose status an administrator has set as verified: no link activates them any more, and nobody
-- registers over them.
UPDATE system_users
SET unverified = FALSE
WHERE id = ANY ($1::uuid[])
  AND unverified;

-- name: verify_user
-- Activates the account of a registration whose link was followed.
UPDATE system_users
SET status = 'active', unverified = FALSE
WHERE id = $1::uuid
  AND status = 'draft'
  AND unverified;

-- name: set_profile
-- Changes those values of a user's profile that the object $2 has.
UPDATE system_users AS users
SET first_name = profile.first_name,
    last_name = profile.last_name,
    location = profile.location,
    title = profile.title,
    description = profile.description,
    tags = profile.tags,
    language = profile.language,
    appearance = profile.appearance,
    theme_light_overrides = profile.theme_light_overrides,
    theme_dark_overrides = profile.theme_dark_overrides,
    email_notifications = profile.email_notifications
FROM system_users AS stored
CROSS JOIN json_populate_record(stored, $2::json) AS profile
WHERE users.id = $1::uuid
  AND stored.id = users.id;

-- name: set_last_page
-- Records the page of an app that a user has opened last, unless it is the same.
UPDATE system_users
SET last_page = $2::text
WHERE id = $1::uuid
  AND last_page IS DISTINCT FROM $2::text;
