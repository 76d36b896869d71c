-- A key near the end of a column must not take a sequence that counts further beyond what the column holds.

CREATE OR REPLACE FUNCTION system_pass_keys(counted text, named text, keys bigint[]) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    counter record;
    furthest numeric;
    half numeric;
    present numeric;
    steps numeric;
BEGIN
    SELECT
        seqrelid AS name,
        seqstart::numeric AS first,
        seqincrement::numeric AS stride,
        CASE WHEN seqincrement > 0 THEN least(seqmax, largest) ELSE greatest(seqmin, -largest - 1) END AS bound,
        seqcache AS ahead
    INTO counter
    FROM pg_sequence
    CROSS JOIN (
        -- A sequence that the column does not own may count further than the column does.
        WITH RECURSIVE kinds (kind) AS (
            SELECT atttypid
            FROM pg_attribute
            WHERE attrelid = to_regclass(quote_ident(counted))
              AND attname = named
            UNION ALL
            SELECT typbasetype
            FROM kinds
            JOIN pg_type ON pg_type.oid = kind AND typtype = 'd'
        )
        SELECT min(
            CASE kind
                WHEN 'smallint'::regtype THEN 32767
                WHEN 'integer'::regtype THEN 2147483647
                ELSE 9223372036854775807
            END::numeric
        ) AS largest
        FROM kinds
    ) AS numbers
    WHERE seqrelid = system_sequence(counted, named);
    IF NOT FOUND OR NOT has_sequence_privilege(counter.name, 'USAGE') THEN
        RETURN true;  -- the write is good, whoever may count
    END IF;
    -- Those who bring keys take turns, because a sequence that two set at once could go back.
    PERFORM pg_advisory_xact_lock(hashtextextended('system_pass_keys', counter.name::bigint));
    present := coalesce(pg_sequence_last_value(counter.name), counter.first - counter.stride);
    -- A leap goes half of the way at most: a single key, also one of a write that is refused, must not use up all the
    -- others. Behind that the sequence still follows keys that are near. Nothing comes behind the last key of all.
    half := counter.first + (counter.bound - counter.first) / 2;
    SELECT CASE WHEN counter.stride > 0 THEN max(key) ELSE min(key) END INTO furthest
    FROM unnest(keys) AS key
    WHERE (counter.bound - key) * counter.stride > 0
      AND (
          (half - key) * counter.stride >= 0
          OR (key - present) / counter.stride <= 10000
          OR abs(counter.bound - counter.first) < 65536  -- too few to be worth it
      );
    steps := coalesce(floor((furthest - present) / counter.stride), 0);
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
