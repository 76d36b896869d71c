-- name: next_keys
-- The next automatic keys of a table, none where a sequence of somebody else's makes them.
SELECT nextval(sequence)::text
FROM pg_get_serial_sequence(quote_ident($1::text), $2::text) AS sequence
CROSS JOIN generate_series(1, $3::integer)
WHERE sequence IS NOT NULL;
