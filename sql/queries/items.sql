-- name: next_keys
-- The next automatic keys of a table, none where no sequence makes them.
SELECT nextval(sequence)::text
FROM system_sequence($1::text, $2::text) AS sequence
CROSS JOIN generate_series(1, $3::integer)
WHERE sequence IS NOT NULL;

-- name: pass_keys
-- Let the automatic keys of a table go on behind these, and never back.
SELECT system_pass_keys($1::text, $2::text, $3::bigint[]);

-- name: link_revisions
-- Revisions of nested writes get the revision of the write around them; all were made in this transaction.
UPDATE system_revisions AS revision
SET parent = link.parent
FROM unnest($1::bigint[], $2::bigint[]) AS link (id, parent)
WHERE revision.id = link.id
  AND revision.created = now();
