-- name: find_external_account
-- The user whom a provider ($1) knows by an identifier ($2), and what a login may change of it.
SELECT
    users.id::text,
    users.status,
    users.tfa_secret,
    users.email,
    users.first_name,
    users.last_name,
    users.role::text,
    coalesce(users.login_after > now(), FALSE)
FROM system_users AS users
WHERE users.provider = $1::text
  AND users.external_identifier = $2::text;

-- name: find_pending_account
-- The same by the id of a user, for a login that still needs a second factor.
SELECT
    users.id::text,
    users.status,
    users.tfa_secret,
    users.email,
    users.first_name,
    users.last_name,
    users.role::text,
    coalesce(users.login_after > now(), FALSE)
FROM system_users AS users
WHERE users.id = $1::uuid
  AND users.provider = $2::text;

-- name: is_email_taken
-- Whether another user ($2) has an address, whatever its capitals.
SELECT EXISTS (
    SELECT
    FROM system_users
    WHERE lower(email) = lower($1::text)
      AND id IS DISTINCT FROM $2::uuid
);

-- name: role_exists
-- Whether there is a role of this id.
SELECT EXISTS (SELECT FROM system_roles WHERE id = $1::uuid);

-- name: find_role_of_groups
-- The role with the name of one of these groups; the first group wins.
SELECT roles.id::text
FROM unnest($1::text[]) WITH ORDINALITY AS groups (name, position)
JOIN system_roles AS roles ON roles.name = groups.name
ORDER BY groups.position, roles.id
LIMIT 1;

-- name: insert_external_user
-- Inserts a user whom a provider has confirmed; returns no row if the identifier or the address is taken.
INSERT INTO system_users (provider, external_identifier, email, first_name, last_name, role)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::uuid)
ON CONFLICT DO NOTHING
RETURNING id::text;

-- name: update_external_user
-- Takes over what a provider tells of a user.
UPDATE system_users
SET email = $2::text,
    first_name = $3::text,
    last_name = $4::text,
    role = $5::uuid
WHERE id = $1::uuid;

-- name: keep_saml_answer
-- Keeps what an answer of SAML says until the browser asks for it; returns no row for an assertion that came before.
-- Assertions whose time is over are refused anyway, and go.
WITH expired AS (
    DELETE FROM system_saml_answers
    WHERE expires < now()
)
INSERT INTO system_saml_answers (provider, assertion, request, profile, expires)
VALUES ($1::text, $2::text, $3::text, $4::text::json, $5::timestamptz)
ON CONFLICT DO NOTHING
RETURNING assertion;

-- name: use_saml_answer
-- What the answer to a request of SAML says, once. The row stays, so that the assertion is known when it comes again.
WITH kept AS (
    SELECT provider, assertion, profile
    FROM system_saml_answers
    WHERE provider = $1::text
      AND request = $2::text
      AND profile IS NOT NULL
      AND expires > now()
    LIMIT 1
    FOR UPDATE
)
UPDATE system_saml_answers AS answers
SET profile = NULL
FROM kept
WHERE answers.provider = kept.provider
  AND answers.assertion = kept.assertion
RETURNING kept.profile::text;

-- name: record_external_login
-- Records when a user of a provider ($2) logged in, and resets the failed logins. It moves no counter. It changes nothing
-- if the user has been suspended, or given another provider, meanwhile.
UPDATE system_users
SET last_access = date_trunc('milliseconds', now()),
    failed_logins = 0,
    login_after = NULL
WHERE id = $1::uuid
  AND status = 'active'
  AND provider = $2::text
RETURNING id::text;

-- name: find_recent_external_login
-- The session of the caller ($2 by id, $3 by the digest of its cookie), if a provider has confirmed its user ($1) within
-- ten minutes.
SELECT sessions.id::text
FROM system_sessions AS sessions
JOIN system_users AS users ON users.id = sessions."user"
WHERE users.id = $1::uuid
  AND users.provider <> 'default'
  AND (sessions.id = $2::uuid OR sessions.token = $3::text)
  AND sessions.created > now() - interval '10 minutes';

-- name: find_provider_of_session
-- The provider of the user whose session has the current token $2 (its digest), what it knows the user by, and whether
-- the session has a refresh token of it; no row for users of this service.
SELECT
    users.provider,
    users.id::text,
    coalesce(users.external_identifier, ''),
    sessions.provider_token IS NOT NULL
FROM system_sessions AS sessions
JOIN system_users AS users ON users.id = sessions."user"
WHERE sessions.id = $1::uuid
  AND sessions.token = $2::text
  AND sessions.expires > now()
  AND users.provider <> 'default';

-- name: lock_provider_token
-- The refresh token of the provider that such a session has. Locked: a provider may take it only once.
SELECT
    id::text,
    provider_token
FROM system_sessions
WHERE id = $1::uuid
  AND token = $2::text
  AND expires > now()
  AND provider_token IS NOT NULL
FOR UPDATE;

-- name: keep_provider_token
-- Keeps the refresh token that a provider gave for the one before.
UPDATE system_sessions
SET provider_token = $2::text
WHERE id = $1::uuid;
