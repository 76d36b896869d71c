-- name: use_step
-- Takes the step of time whose code was right, once, and never one before the last.
UPDATE system_users
SET tfa_step = $2::bigint
WHERE id = $1::uuid
  AND tfa_secret = $3::text
  AND coalesce(tfa_step < $2::bigint, TRUE)
RETURNING id::text;

-- name: use_recovery_code
-- Takes a recovery code, once.
DELETE FROM system_recovery_codes
WHERE "user" = $1::uuid
  AND digest = $2::text
RETURNING digest;

-- name: enable_factor
-- The second factor of a user who has none; codes of an earlier one are worth nothing.
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
-- Back to the password alone.
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

-- name: forget_recovery_codes
-- Before new ones are given.
DELETE FROM system_recovery_codes
WHERE "user" = $1::uuid;

-- name: keep_recovery_codes
-- Only digests are stored.
INSERT INTO system_recovery_codes ("user", digest)
SELECT $1::uuid, digest
FROM unnest($2::text[]) AS digest;

-- name: find_names
-- What an authenticator app shows: whose code it is, and where it is for.
SELECT coalesce(users.email, users.id::text), settings.project_name
FROM system_users AS users
CROSS JOIN system_settings AS settings
WHERE users.id = $1::uuid;
