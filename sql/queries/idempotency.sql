-- name: lock_idempotency_key
-- Calls of one caller with the same key take turns: the second one finds the answer of the first.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || $1::text || ' ' || $2::text, 2));

-- name: find_idempotent_answer
-- The answer that a call got within the last day, and whether it is still to come. Older ones do not count, though they may
-- still be there.
SELECT request, answer, is_record, is_record AND answer IS NULL
FROM system_idempotency
WHERE caller = $1::text
  AND key = $2::text
  AND created > now() - interval '24 hours';

-- name: claim_idempotency_key
-- Claims a key for a call that writes in several transactions; nothing where it has an answer, or where the same call has
-- claimed it in the last $4 seconds. A record without an answer, which no call is answered with, is a claim.
INSERT INTO system_idempotency (caller, key, request, is_record)
VALUES ($1::text, $2::text, $3::text, true)
ON CONFLICT (caller, key) DO UPDATE
SET request = EXCLUDED.request,
    answer = EXCLUDED.answer,
    is_record = EXCLUDED.is_record,
    created = EXCLUDED.created
WHERE system_idempotency.created <= now() - interval '24 hours'
   OR (
       system_idempotency.is_record
       AND system_idempotency.answer IS NULL
       AND system_idempotency.request = EXCLUDED.request
       AND system_idempotency.created <= now() - make_interval(secs => $4::double precision)
   )
RETURNING key;

-- name: release_idempotency_key
-- Gives up a claim whose call has failed.
DELETE FROM system_idempotency
WHERE caller = $1::text
  AND key = $2::text
  AND is_record
  AND answer IS NULL;

-- name: store_idempotent_answer
-- Stores the answer of a call. Only one that has expired can be there, because calls with the same key take turns, or the
-- claim of this call.
INSERT INTO system_idempotency (caller, key, request, answer, is_record)
VALUES ($1::text, $2::text, $3::text, $4::bytea, $5::boolean)
ON CONFLICT (caller, key) DO UPDATE
SET request = EXCLUDED.request,
    answer = EXCLUDED.answer,
    is_record = EXCLUDED.is_record,
    created = EXCLUDED.created;

-- name: end_expired_answers
-- Deletes the answers that no call gets any more; returns how many.
WITH ended AS (
    DELETE FROM system_idempotency
    WHERE created <= now() - interval '24 hours'
    RETURNING key
)
SELECT count(*)
FROM ended;
