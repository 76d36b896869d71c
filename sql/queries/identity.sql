-- name: find_actor
-- The caller behind a user's id, a static token's digest, or a session with the digest of its cookie, beside the
-- counters; no user when it may not act. With it the addresses that its roles are bound to, and whether they ask for
-- a second factor that the user does not have.
-- An access token names its session, which must be there: a changed password deletes it and, because it changes
-- system_users, moves the access counter as well, so that callers who were found before are looked up again.
-- A logout leaves the session there until its access token has ended, and moves no counter: that would have every
-- process load everything again.
-- Roles add up along their parents; who has no role holds what the Public role holds.
WITH RECURSIVE caller AS (
    SELECT users.id, users.role, users.tfa_secret
    FROM system_users AS users
    WHERE (
        users.token = $2::text
        OR users.id = coalesce($1::uuid, (
            SELECT sessions."user"
            FROM system_sessions AS sessions
            WHERE sessions.id = $3::uuid
              AND sessions.token = $4::text
              AND sessions.mode = 'session'
              AND sessions.expires > now()
        ))
    )
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
),
chain (id) AS (
    SELECT role
    FROM caller
    UNION
    SELECT roles.parent
    FROM chain
    JOIN system_roles AS roles ON roles.id = chain.id
),
held AS (
    SELECT
        coalesce(bool_or(roles.admin_access), FALSE) AS admin,
        coalesce(bool_or(roles.app_access), FALSE) AS app,
        coalesce(array_agg(roles.id ORDER BY roles.id), '{}') AS roles,
        coalesce(json_agg(roles.ip_access) FILTER (WHERE roles.ip_access IS NOT NULL), '[]') AS networks,
        coalesce(bool_or(roles.enforce_tfa), FALSE) AS enforce_tfa
    FROM system_roles AS roles
    JOIN chain ON chain.id = roles.id
)
SELECT
    version.structure,
    version.access,
    caller.id::text,
    caller.role::text,
    held.admin,
    held.app,
    held.roles::text[],
    CASE WHEN held.admin THEN '[]' ELSE (
        SELECT coalesce(json_agg(granted ORDER BY granted.id), '[]')::text
        FROM system_permissions AS granted
        WHERE granted.role = ANY (held.roles)
           OR (granted.role IS NULL AND held.roles = '{}')
    ) END AS permissions,
    held.networks::text,
    held.enforce_tfa AND caller.tfa_secret IS NULL
FROM system_version AS version
CROSS JOIN held
LEFT JOIN caller ON TRUE;

-- name: find_open_session
-- Whether a session cookie is still good: asked with every request, so it asks no more than that.
SELECT sessions.id::text
FROM system_sessions AS sessions
WHERE sessions.id = $1::uuid
  AND sessions.token = $2::text
  AND sessions.mode = 'session'
  AND sessions.expires > now();

-- name: move_structure
-- Takes the row lock that lets one change of structure run at a time, and tells every process of it.
UPDATE system_version
SET structure = structure + 1;

-- name: move_structure_from
-- The same, where the counter still stands at $1 and nobody is about to move it; whoever is has no need of this.
UPDATE system_version
SET structure = structure + 1
WHERE id = (SELECT id FROM system_version WHERE structure = $1::bigint FOR NO KEY UPDATE SKIP LOCKED)
RETURNING structure;
