-- Rules of permissions look at the items that revisions hold, as rows of the items' table.

CREATE FUNCTION system_held(kind anyelement, held json, names text[]) RETURNS SETOF anyelement
    LANGUAGE plpgsql STABLE ROWS 1 COST 5000 AS $$
DECLARE
    name text;
    value json;
    picked text := '';
BEGIN
    FOREACH name IN ARRAY names LOOP
        value := held -> name;
        IF value IS NULL THEN
            RETURN;
        END IF;
        picked := concat(picked, ',', to_json(name), ':', value);
    END LOOP;
    RETURN NEXT json_populate_record(kind, concat('{', substr(picked, 2), '}')::json);
EXCEPTION
    -- A column that has another type by now: what the revision holds is no item of this kind.
    WHEN data_exception OR integrity_constraint_violation THEN
        RETURN;
END
$$;

COMMENT ON FUNCTION system_held(anyelement, json, text[]) IS 'The row of a table that a revision holds, with these columns only; no row where it does not hold all of them';
