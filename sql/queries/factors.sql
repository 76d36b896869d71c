-- name: use_code_step
-- Records the time step of a correct code, unless that step or a later one was used before: each code counts once.
UPDATE system_users
SET tfa_step = $2::bigint
WHERE id = $1::uuid
  AND tfa_secret = $3::text
  AND coalesce(tfa_step < $2::bigint, TRUE)
RETURNING id::text;

-- name: use_recovery_code
-- Deletes a recovery code, so that it can be used once; returns no row if there is no such code.
DELETE FROM system_recovery_codes
WHERE "user" = $1::uuid
  AND digest = $2::text
RETURNING digest;

-- name: enable_factor
-- Sets the second factor of a user who has none, and deletes recovery codes of an earlier one.
WITH enabled AS (
    UPDATE system_users
    SET tfa_secret = $2::text, tfa_step = $3::bigint
    WHERE id = $1::uuid
      AND tfa_secret IS NULL
    RETURNING id
),
forgotten AS (
    DELETE FROM system_recovery_codes
    WHERE "user" IN (SELECT id FROM enabled)
)
SELECT id::text FROM enabled;

-- name: disable_factor
-- Removes the second factor of a user, with its recovery codes.
WITH disabled AS (
    UPDATE system_users
    SET tfa_secret = NULL, tfa_step = NULL
    WHERE id = $1::uuid
      AND tfa_secret IS NOT NULL
    RETURNING id
),
forgotten AS (
    DELETE FROM system_recovery_codes
    WHERE "user" = $1::uuid
)
SELECT id::text FROM disabled;

-- name: delete_recovery_codes
-- Deletes a user's recovery codes before new ones are made.
DELETE FROM system_recovery_codes
WHERE "user" = $1::uuid;

-- name: store_recovery_codes
-- Stores recovery codes, of which only the digests are kept.
INSERT INTO system_recovery_codes ("user", digest)
SELECT $1::uuid, digest
FROM unnest($2::text[]) AS digest;

-- name: find_names
-- What an authenticator app shows: the user, and the project.
SELECT coalesce(users.email, users.id::text), settings.project_name
FROM system_users AS users
CROSS JOIN system_settings AS settings
WHERE users.id = $1::uuid;
