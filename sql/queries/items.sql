-- name: next_keys
-- The next automatic keys of a table; no rows if no sequence makes them.
SELECT nextval(sequence)::text
FROM system_column_sequence($1::text, $2::text) AS sequence
CROSS JOIN generate_series(1, $3::integer)
WHERE sequence IS NOT NULL;

-- name: advance_keys
-- Advances the sequence of a table beyond these keys, and never back.
SELECT system_advance_sequence($1::text, $2::text, $3::bigint[]);

-- name: link_revisions
-- Sets the parent of revisions of nested writes; all of them were inserted in this transaction.
UPDATE system_revisions AS revision
SET parent = link.parent
FROM unnest($1::bigint[], $2::bigint[]) AS link (id, parent)
WHERE revision.id = link.id
  AND revision.created = now();

-- name: reserve_revisions
-- Reserves ids for revisions that are written later, so that others can name them as their parent before.
SELECT nextval('system_revisions_id_seq')
FROM generate_series(1, $1::integer);

-- name: replace_parents
-- Replaces a reserved id as parent by the id of the true parent, or by none, in revisions that this transaction has
-- inserted after it.
UPDATE system_revisions AS revision
SET parent = link.parent
FROM unnest($1::bigint[], $2::bigint[]) AS link (number, parent)
WHERE revision.parent = link.number
  AND revision.id > link.number
  AND revision.created = now();
