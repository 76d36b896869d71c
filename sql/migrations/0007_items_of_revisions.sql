-- Rules of permissions look at the items that revisions hold, as rows of the items' table.

CREATE FUNCTION system_held(kind anyelement, held json, names text[]) RETURNS SETOF anyelement
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    found kind%TYPE;
    picked json;
BEGIN
    IF (SELECT count(*) FROM json_object_keys(held) AS k WHERE k = ANY (names)) < cardinality(names) THEN
        RETURN;
    END IF;
    SELECT json_object_agg(e.key, e.value) INTO picked FROM json_each(held) AS e WHERE e.key = ANY (names);
    found := json_populate_record(kind, picked);
    RETURN NEXT found;
EXCEPTION
    -- A column that has another type by now: what the revision holds is no item of this kind.
    WHEN data_exception OR integrity_constraint_violation THEN
        RETURN;
END
$$;

COMMENT ON FUNCTION system_held(anyelement, json, text[]) IS 'The row of a table that a revision holds, with these columns only; no row where it does not hold all of them';
