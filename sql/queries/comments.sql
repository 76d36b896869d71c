-- name: insert_comments
-- Inserts comments, which are rows of activity: arrays of collections, items and texts; returns their keys in this order.
WITH inserted AS (
    INSERT INTO system_activity (action, "user", ip, user_agent, origin, collection, item, comment)
    SELECT 'comment', $1::uuid, $2::text, $3::text, $4::text, sent.collection, sent.item, sent.comment
    FROM unnest($5::text[], $6::text[], $7::text[]) WITH ORDINALITY AS sent (collection, item, comment, number)
    ORDER BY sent.number
    RETURNING id
)
SELECT id::text
FROM inserted
-- Not by the column of the answer, which is a text.
ORDER BY inserted.id;

-- name: lock_comments
-- Locks comments and returns key, author, collection, item and text of each; no row for activity of another kind.
SELECT id::text, "user"::text, collection, item, comment
FROM system_activity
WHERE id = ANY ($1::bigint[])
  AND action = 'comment'
-- Not by the column of the answer, which is a text.
ORDER BY system_activity.id
FOR UPDATE;

-- name: change_comments
-- Replaces the texts of comments: arrays of keys and texts.
UPDATE system_activity AS activity
SET comment = sent.comment
FROM unnest($1::bigint[], $2::text[]) AS sent (id, comment)
WHERE activity.id = sent.id
  AND activity.action = 'comment';

-- name: delete_comments
-- Deletes comments; no history is kept of them.
DELETE FROM system_activity
WHERE id = ANY ($1::bigint[])
  AND action = 'comment';
