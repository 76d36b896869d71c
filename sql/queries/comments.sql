-- name: insert_comment
-- Inserts a comment, which is a row of activity; returns its key.
INSERT INTO system_activity (action, "user", ip, user_agent, origin, collection, item, comment)
VALUES ('comment', $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text)
RETURNING id::text;

-- name: lock_comment
-- Locks a comment and returns its author, collection, item and text; no row for activity of another kind.
SELECT "user"::text, collection, item, comment
FROM system_activity
WHERE id = $1::bigint
  AND action = 'comment'
FOR UPDATE;

-- name: change_comment
-- Replaces the text of a comment.
UPDATE system_activity
SET comment = $2::text
WHERE id = $1::bigint
  AND action = 'comment';

-- name: delete_comment
-- Deletes a comment; no history is kept of it.
DELETE FROM system_activity
WHERE id = $1::bigint
  AND action = 'comment';
