-- Search compares texts without case and accents, the same way in a statement and in an index.

ALTER TABLE system_collections ADD COLUMN searchable boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN system_collections.searchable IS 'Whether the service keeps indexes that serve searches in the collection';

-- PostgreSQL calls unaccent stable because its dictionary can be exchanged; an index needs a function that is
-- immutable. Without the extension accents count.
DO $$
DECLARE
    home text := (
        SELECT quote_ident(nspname)
        FROM pg_extension
        JOIN pg_namespace ON pg_namespace.oid = extnamespace
        WHERE extname = 'unaccent'
    );
    folded text := CASE
        WHEN home IS NULL THEN 'lower($1)'
        ELSE format('lower(%s.unaccent(''%s.unaccent'', $1))', home, home)
    END;
BEGIN
    -- With RETURN the function depends on the extension, which then cannot be dropped from under it.
    EXECUTE 'CREATE FUNCTION system_fold(text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN ' || folded;
END
$$;

COMMENT ON FUNCTION system_fold(text) IS 'A text as searches compare it: in small letters and without accents';
