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

-- name: draw_revisions
-- Numbers that stand for revisions which are still to come.
SELECT nextval('system_revisions_id_seq')
FROM generate_series(1, $1::integer);

-- name: pass_revisions_on
-- What was made under such a number, after it and in this transaction, gets its true parent, or none.
UPDATE system_revisions AS revision
SET parent = link.parent
FROM unnest($1::bigint[], $2::bigint[]) AS link (number, parent)
WHERE revision.parent = link.number
  AND revision.id > link.number
  AND revision.created = now();
