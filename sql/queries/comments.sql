-- name: insert_comment
-- A comment is a piece of activity; returns its key.
INSERT INTO system_activity (action, "user", ip, user_agent, origin, collection, item, comment)
VALUES ('comment', $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text)
RETURNING id::text;

-- name: lock_comment
-- Whose a comment is; nothing when it is none.
SELECT "user"::text
FROM system_activity
WHERE id = $1::bigint
  AND action = 'comment'
FOR UPDATE;

-- name: change_comment
-- Another text for a comment.
UPDATE system_activity
SET comment = $2::text
WHERE id = $1::bigint
  AND action = 'comment';

-- name: delete_comment
-- A comment goes without a trace.
DELETE FROM system_activity
WHERE id = $1::bigint
  AND action = 'comment';
