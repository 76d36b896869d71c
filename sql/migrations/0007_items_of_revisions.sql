-- Rules of permissions look at the items that revisions hold, as rows of the items' table.

CREATE FUNCTION system_held(kind anyelement, held json, names text[]) RETURNS SETOF anyelement
    LANGUAGE plpgsql STABLE ROWS 1 AS $$
DECLARE
    found kind%TYPE;
    picked json;
    known integer;
BEGIN
    SELECT json_object_agg(e.key, e.value), count(DISTINCT e.key)
      INTO picked, known
      FROM json_each(held) AS e
     WHERE e.key = ANY (names);
    IF known = cardinality(names) THEN
        found := json_populate_record(kind, picked);
        RETURN NEXT found;
    END IF;
EXCEPTION
    -- A column that has another type by now: what the revision holds is no item of this kind.
    WHEN data_exception OR integrity_constraint_violation THEN
        RETURN;
END
$$;

COMMENT ON FUNCTION system_held(anyelement, json, text[]) IS 'The row of a table that a revision holds, with these columns only; no row where it does not hold all of them';
