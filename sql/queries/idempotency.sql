-- name: lock_idempotency_key
-- Calls with the same key of the same caller take turns.
SELECT pg_advisory_xact_lock(hashtextextended($1::text || ' ' || $2::text, 2));

-- name: find_idempotent_answer
-- What a call was answered within the last day.
SELECT request, answer, is_record
FROM system_idempotency
WHERE caller = $1::text
  AND key = $2::text
  AND created > now() - interval '24 hours';

-- name: keep_idempotent_answer
-- The answer of a call; one that has expired makes room.
INSERT INTO system_idempotency (caller, key, request, answer, is_record)
VALUES ($1::text, $2::text, $3::text, $4::bytea, $5::boolean)
ON CONFLICT (caller, key) DO UPDATE
SET request = EXCLUDED.request,
    answer = EXCLUDED.answer,
    is_record = EXCLUDED.is_record,
    created = EXCLUDED.created;

-- name: end_expired_answers
-- What nobody can ask for again; returns how many.
WITH ended AS (
    DELETE FROM system_idempotency
    WHERE created <= now() - interval '24 hours'
    RETURNING key
)
SELECT count(*)
FROM ended;
