-- name: find_actor
-- The caller with its rights, and the counters. $1 is the id of a user, $2 the digest of a static token, $3 and $4 are
-- a session and the digest of its cookie, $5 a role whose rights a run of a flow has, $6 an address that a surrounding
-- application names. Without an active user the id is NULL. Networks are those that the caller's roles are bound to; the
-- last column tells whether the roles ask for a second factor that the user does not have.
-- An access token names its session, which must exist: a changed password deletes it. Because that changes system_users,
-- it also moves the access counter, so that callers who were looked up before are looked up again.
-- A logout keeps the session until its access token expires, and moves no counter: otherwise every process would load
-- all rights again.
-- Rights of a role and its parents add up; a caller without a role has the rights of the Public role.
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
        OR lower(users.email) = lower($6::text)
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
    SELECT $5::uuid
    UNION
    SELECT roles.parent
    FROM chain
    JOIN system_roles AS roles ON roles.id = chain.id
),
rights AS (
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
    version.flows,
    caller.id::text,
    caller.role::text,
    rights.admin,
    rights.app,
    rights.roles::text[],
    CASE WHEN rights.admin THEN '[]' ELSE (
        SELECT coalesce(json_agg(granted ORDER BY granted.id), '[]')::text
        FROM system_permissions AS granted
        WHERE granted.role = ANY (rights.roles)
           OR (granted.role IS NULL AND rights.roles = '{}')
    ) END AS permissions,
    rights.networks::text,
    rights.enforce_tfa AND caller.tfa_secret IS NULL
FROM system_version AS version
CROSS JOIN rights
LEFT JOIN caller ON TRUE;

-- name: find_open_session
-- Whether a session cookie is still valid. It is asked with every request, and so does nothing else.
SELECT sessions.id::text
FROM system_sessions AS sessions
WHERE sessions.id = $1::uuid
  AND sessions.token = $2::text
  AND sessions.mode = 'session'
  AND sessions.expires > now();

-- name: advance_structure
-- Moves the counter of structure. The lock on its row lets one change of structure run at a time; with the commit every
-- process learns of the change. Returns all counters.
UPDATE system_version
SET structure = structure + 1
RETURNING structure, access, flows;

-- name: advance_free_structure
-- Moves the counter of structure unless a change of it is under way.
UPDATE system_version
SET structure = structure + 1
WHERE id = (SELECT id FROM system_version FOR NO KEY UPDATE SKIP LOCKED)
RETURNING structure;

-- name: advance_structure_from
-- Moves the counter if it still is $1 and nobody else is about to move it: then this is not needed.
UPDATE system_version
SET structure = structure + 1
WHERE id = (SELECT id FROM system_version WHERE structure = $1::bigint FOR NO KEY UPDATE SKIP LOCKED)
RETURNING structure;

-- name: has_account
-- Whether a user of any status has an address, whatever its case.
SELECT EXISTS (SELECT FROM system_users WHERE lower(email) = lower($1::text));
