-- Shares: items that are readable through a link.

-- name: find_share_actor
-- The share of a session ($1, and for a cookie the digest $2) with the rights that it depends on, and the counters. No
-- row for a share that has ended or not begun, whose creator is not active, or whose role is not the creator's own nor a
-- parent of it. Rights of a role and its parents add up; without a role they are those of the Public role.
WITH RECURSIVE share AS (
    SELECT
        shares.*,
        creators.role AS creator_role
    FROM system_sessions AS sessions
    JOIN system_shares AS shares ON shares.id = sessions.share
    JOIN system_users AS creators ON creators.id = shares.user_created
    WHERE sessions.id = $1::uuid
      AND (
          $2::text IS NULL
          OR (sessions.token = $2::text AND sessions.mode = 'session' AND sessions.expires > now())
      )
      AND creators.status = 'active'
      AND coalesce(shares.date_start <= now(), TRUE)
      AND coalesce(shares.date_end > now(), TRUE)
),
chain (id) AS (
    SELECT role
    FROM share
    UNION
    SELECT roles.parent
    FROM chain
    JOIN system_roles AS roles ON roles.id = chain.id
),
creator_chain (id) AS (
    SELECT creator_role
    FROM share
    UNION
    SELECT roles.parent
    FROM creator_chain
    JOIN system_roles AS roles ON roles.id = creator_chain.id
),
rights AS (
    SELECT
        coalesce(bool_or(roles.admin_access), FALSE) AS admin,
        coalesce(json_agg(roles.ip_access) FILTER (WHERE roles.ip_access IS NOT NULL), '[]') AS networks
    FROM system_roles AS roles
    JOIN chain ON chain.id = roles.id
),
creator_rights AS (
    SELECT
        coalesce(bool_or(roles.admin_access), FALSE) AS admin
    FROM system_roles AS roles
    JOIN creator_chain ON creator_chain.id = roles.id
)
SELECT
    version.structure,
    version.access,
    version.flows,
    share.id::text,
    share.collection,
    share.item,
    share.role::text,
    rights.admin,
    (
        SELECT coalesce(json_agg(granted ORDER BY granted.id), '[]')::text
        FROM system_permissions AS granted
        WHERE granted.action = 'read'
          AND (
              granted.role IN (SELECT id FROM chain)
              OR (granted.role IS NULL AND share.role IS NULL)
          )
    ),
    rights.networks::text,
    share.user_created::text,
    share.creator_role::text,
    creator_rights.admin,
    (
        SELECT coalesce(json_agg(granted ORDER BY granted.id), '[]')::text
        FROM system_permissions AS granted
        WHERE granted.action IN ('read', 'share')
          AND granted.collection = share.collection
          AND (
              granted.role IN (SELECT id FROM creator_chain)
              OR (granted.role IS NULL AND share.creator_role IS NULL)
          )
    ),
    (
        SELECT coalesce(json_agg(granted ORDER BY granted.id), '[]')::text
        FROM system_permissions AS granted
        WHERE granted.action = 'read'
          AND granted.role IS NULL
    ),
    extract(epoch FROM share.date_end - now())::double precision
FROM system_version AS version
CROSS JOIN rights
CROSS JOIN creator_rights
CROSS JOIN share
WHERE share.role IS NULL
   OR creator_rights.admin
   OR share.role IN (SELECT id FROM creator_chain);

-- name: find_share_password
-- The password of a share that can be used now, whether it has one, and whether wrong ones make callers wait.
SELECT
    shares.id::text,
    shares.password,
    coalesce(shares.login_after > now(), FALSE)
FROM system_shares AS shares
WHERE shares.id = $1::uuid
  AND coalesce(shares.date_start <= now(), TRUE)
  AND coalesce(shares.date_end > now(), TRUE)
  AND coalesce(shares.times_used < shares.max_uses, TRUE);

-- name: count_failed_share_login
-- Counts a wrong password of a share. From the limit of the settings on, callers wait: twice as long after each failure,
-- half a minute at most. Attempts while they wait do not count: nobody can lock others out for ever. The commit does not
-- wait for the disk: for an unknown share nothing is written.
WITH without_sync AS MATERIALIZED (  -- in the FROM list below, or it would not be run
    SELECT set_config('synchronous_commit', 'off', TRUE)
)
UPDATE system_shares AS shares
SET failed_logins = shares.failed_logins + 1,
    login_after = CASE WHEN shares.failed_logins + 1 >= settings.auth_login_attempts THEN
        now() + interval '1 second'
            * least(30, 2 ^ least(5, shares.failed_logins + 1 - settings.auth_login_attempts))
    END
FROM without_sync, system_settings AS settings
WHERE shares.id = $1::uuid
  AND coalesce(shares.login_after <= now(), TRUE);

-- name: use_share
-- Counts a use of a share, if there is one left and the password is still $2: of calls at once each sees the others'.
-- $3 is a new hash of the password, where the old one has older parameters.
-- None while wrong passwords make callers wait: of guesses at once some may have been counted after this one was compared.
UPDATE system_shares
SET times_used = times_used + 1,
    failed_logins = 0,
    login_after = NULL,
    password = coalesce($3::text, password)
WHERE id = $1::uuid
  AND password IS NOT DISTINCT FROM $2::text
  AND coalesce(date_start <= now(), TRUE)
  AND coalesce(date_end > now(), TRUE)
  AND coalesce(times_used < max_uses, TRUE)
  AND coalesce(login_after <= now(), TRUE)
RETURNING id::text;

-- name: open_share_session
-- Inserts the session of a share, which ends with the share at the latest.
INSERT INTO system_sessions (id, share, token, mode, expires, ip, user_agent, origin)
SELECT $1::uuid, id, $3::text, $4::text, least($5::timestamptz, date_end), $6::text, $7::text, $8::text
FROM system_shares
WHERE id = $2::uuid;

-- name: find_share_info
-- What everybody may know of a share that has begun and not ended.
SELECT
    id::text,
    collection,
    item,
    CASE WHEN password IS NOT NULL THEN '**********' END,
    max_uses,
    times_used,
    system_timestamp_text(date_start),
    system_timestamp_text(date_end)
FROM system_shares
WHERE id = $1::uuid
  AND coalesce(date_start <= now(), TRUE)
  AND coalesce(date_end > now(), TRUE);

-- name: find_share_for_invitation
-- Name and creator of a share.
SELECT name, user_created::text
FROM system_shares
WHERE id = $1::uuid;

-- name: find_shares
-- What never changes of shares, by their keys.
SELECT id::text, collection, item, times_used, user_created::text, role::text
FROM system_shares
WHERE id = ANY ($1::uuid[]);

-- name: find_role_line
-- A role and its parents.
WITH RECURSIVE line (id) AS (
    SELECT $1::uuid
    UNION
    SELECT roles.parent
    FROM line
    JOIN system_roles AS roles ON roles.id = line.id
    WHERE roles.parent IS NOT NULL
)
SELECT id::text
FROM line
WHERE id IS NOT NULL;

-- name: end_share_sessions
-- Deletes the sessions of shares that are about to get another password, role or date: $1 are their keys and new values.
DELETE FROM system_sessions
USING jsonb_array_elements($1::jsonb) AS changes (change)
JOIN system_shares AS shares ON shares.id = (change ->> 'id')::uuid
WHERE system_sessions.share = shares.id
  AND (
    (change ? 'password' AND shares.password IS DISTINCT FROM change ->> 'password')
    OR (change ? 'role' AND shares.role IS DISTINCT FROM (change ->> 'role')::uuid)
    OR (change ? 'date_start' AND shares.date_start IS DISTINCT FROM (change ->> 'date_start')::timestamptz)
    OR (change ? 'date_end' AND shares.date_end IS DISTINCT FROM (change ->> 'date_end')::timestamptz)
  );
