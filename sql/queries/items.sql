-- name: next_keys
-- The next automatic keys of a table, none where a sequence of somebody else's makes them.
SELECT nextval(sequence)::text
FROM pg_get_serial_sequence(quote_ident($1::text), $2::text) AS sequence
CROSS JOIN generate_series(1, $3::integer)
WHERE sequence IS NOT NULL;

-- name: pass_keys
-- Let the automatic keys of a table go on behind its last one, and never back.
SELECT setval(sequence, $3::bigint)
FROM pg_get_serial_sequence(quote_ident($1::text), $2::text) AS sequence
WHERE sequence IS NOT NULL
    AND $3::bigint > coalesce(pg_sequence_last_value(sequence::regclass), 0);

-- name: link_revisions
-- Revisions of nested writes get the revision of the write around them; all were made in this transaction.
UPDATE system_revisions AS revision
SET parent = link.parent
FROM unnest($1::bigint[], $2::bigint[]) AS link (id, parent)
WHERE revision.id = link.id
  AND revision.created = now();
