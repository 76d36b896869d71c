-- A key that is given for a column that counts up moves its sequence on, so that no later item gets the same.

CREATE FUNCTION system_sequence(counted text, named text) RETURNS regclass
    LANGUAGE sql STABLE AS $$
    SELECT class.oid::regclass
    FROM pg_attribute AS attribute
    LEFT JOIN pg_attrdef AS definition
        ON definition.adrelid = attribute.attrelid AND definition.adnum = attribute.attnum
    JOIN LATERAL (
        SELECT refobjid AS sequence
        FROM pg_depend
        WHERE classid = 'pg_attrdef'::regclass AND objid = definition.oid AND refclassid = 'pg_class'::regclass
        UNION ALL
        SELECT objid
        FROM pg_depend
        WHERE refclassid = 'pg_class'::regclass AND refobjid = attribute.attrelid AND refobjsubid = attribute.attnum
          AND classid = 'pg_class'::regclass AND deptype = 'i'
    ) AS depend ON TRUE
    JOIN pg_class AS class ON class.oid = depend.sequence AND class.relkind = 'S'
    WHERE attribute.attrelid = to_regclass(quote_ident(counted))
      AND attribute.attname = named
    LIMIT 1
$$;

COMMENT ON FUNCTION system_sequence(text, text) IS 'The sequence that a column takes its values from, whoever owns it';

CREATE FUNCTION system_pass_keys(counted text, named text, keys bigint[]) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    counter record;
    furthest numeric;
    present numeric;
    steps numeric;
BEGIN
    SELECT
        seqrelid AS name,
        seqstart::numeric AS first,
        seqincrement::numeric AS stride,
        (CASE WHEN seqincrement > 0 THEN seqmax ELSE seqmin END)::numeric AS bound,
        seqcache AS ahead
    INTO counter
    FROM pg_sequence
    WHERE seqrelid = system_sequence(counted, named);
    IF NOT FOUND OR NOT has_sequence_privilege(counter.name, 'USAGE') THEN
        RETURN true;  -- the write is good, whoever may count
    END IF;
    -- The last key that there can be is left out: nothing comes behind it, and it must not use up all the others.
    SELECT CASE WHEN counter.stride > 0 THEN max(key) ELSE min(key) END INTO furthest
    FROM unnest(keys) AS key
    WHERE (counter.bound - key) * counter.stride > 0;
    IF furthest IS NULL THEN
        RETURN true;
    END IF;
    -- Those who bring keys take turns, because a sequence that two set at once could go back.
    PERFORM pg_advisory_xact_lock(hashtextextended('system_pass_keys', counter.name::bigint));
    present := coalesce(pg_sequence_last_value(counter.name), counter.first - counter.stride);
    steps := floor((furthest - present) / counter.stride);
    IF steps BETWEEN 1 AND 10000 AND counter.ahead = 1 THEN
        -- Those who bring none take no turn. To draw never goes back, whatever they draw meanwhile; to set could, and
        -- is for leaps that nobody makes up for between two steps of this function.
        PERFORM nextval(counter.name) FROM generate_series(1, steps::integer);
    ELSIF steps > 0 AND has_sequence_privilege(counter.name, 'UPDATE') THEN
        PERFORM setval(counter.name, (present + steps * counter.stride)::bigint);
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'CM001';
EXCEPTION WHEN SQLSTATE 'CM001' THEN
    RETURN true;  -- the turn ends here and not with the transaction; what was counted stays
END
$$;

COMMENT ON FUNCTION system_pass_keys(text, text, bigint[]) IS 'Moves the sequence of a column behind keys that are given for it, and never back';
