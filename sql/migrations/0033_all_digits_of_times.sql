-- Answers show times with all digits that are stored, and the service itself makes times with milliseconds.

ALTER TABLE system_files
    ALTER COLUMN uploaded_on SET DEFAULT date_trunc('milliseconds', now()),
    ALTER COLUMN modified_on SET DEFAULT date_trunc('milliseconds', now());
-- Not its partitions of months, which have no defaults.
ALTER TABLE ONLY system_activity
    ALTER COLUMN "timestamp" SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_activity_default
    ALTER COLUMN "timestamp" SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_flows
    ALTER COLUMN date_created SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_operations
    ALTER COLUMN date_created SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_flow_runs
    ALTER COLUMN date_created SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_flow_deliveries
    ALTER COLUMN "timestamp" SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_dashboards
    ALTER COLUMN date_created SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_panels
    ALTER COLUMN date_created SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_notifications
    ALTER COLUMN "timestamp" SET DEFAULT date_trunc('milliseconds', now());
ALTER TABLE system_shares
    ALTER COLUMN date_created SET DEFAULT date_trunc('milliseconds', now());

-- Answers show times with all digits that are stored: three, or six where there are microseconds.
CREATE FUNCTION system_expanded_year(year numeric, rest text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    -- PostgreSQL has no year 0: before the year 1 comes -1, which ISO 8601 calls 0.
    iso_year numeric := CASE WHEN year < 0 THEN year + 1 ELSE year END;
    digits text := abs(iso_year)::text;
BEGIN
    RETURN concat(CASE WHEN iso_year < 0 THEN '-' ELSE '+' END, lpad(digits, greatest(6, length(digits)), '0'), rest);
END
$$;

COMMENT ON FUNCTION system_expanded_year(numeric, text) IS 'A date or moment of a year before 1 or beyond 9999 as ISO 8601 writes it: -000043-03-15';

CREATE FUNCTION system_date_text(day date) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN day >= '0001-01-01' AND day <= '9999-12-31' THEN day::text
        WHEN isfinite(day) THEN system_expanded_year(
            EXTRACT(YEAR FROM day)::numeric,
            concat('-', lpad(EXTRACT(MONTH FROM day)::text, 2, '0'), '-', lpad(EXTRACT(DAY FROM day)::text, 2, '0'))
        )
        ELSE day::text
    END
$$;

COMMENT ON FUNCTION system_date_text(date) IS 'How answers show a date';

CREATE FUNCTION system_time_text(moment time) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT to_char(moment, CASE
        WHEN moment::time(0) = moment THEN 'HH24:MI:SS'
        WHEN moment::time(3) = moment THEN 'HH24:MI:SS.MS'
        ELSE 'HH24:MI:SS.US'
    END)
$$;

COMMENT ON FUNCTION system_time_text(time) IS 'How answers show a time';

CREATE FUNCTION system_datetime_text(moment timestamp) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN moment >= '0001-01-01' AND moment < '10000-01-01' THEN to_char(moment, CASE
            WHEN moment::timestamp(0) = moment THEN 'YYYY-MM-DD"T"HH24:MI:SS'
            WHEN moment::timestamp(3) = moment THEN 'YYYY-MM-DD"T"HH24:MI:SS.MS'
            ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US'
        END)
        WHEN isfinite(moment) THEN system_expanded_year(EXTRACT(YEAR FROM moment)::numeric, to_char(moment, CASE
            WHEN moment::timestamp(0) = moment THEN '-MM-DD"T"HH24:MI:SS'
            WHEN moment::timestamp(3) = moment THEN '-MM-DD"T"HH24:MI:SS.MS'
            ELSE '-MM-DD"T"HH24:MI:SS.US'
        END))
        ELSE moment::text
    END
$$;

COMMENT ON FUNCTION system_datetime_text(timestamp) IS 'How answers show a date with a time';

CREATE FUNCTION system_timestamp_text(moment timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN moment >= '0001-01-01T00:00:00Z' AND moment < '10000-01-01T00:00:00Z' THEN
            to_char(moment AT TIME ZONE 'UTC', CASE
                WHEN moment::timestamptz(3) = moment THEN 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
                ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
            END)
        WHEN isfinite(moment) THEN
            system_expanded_year(
                EXTRACT(YEAR FROM moment AT TIME ZONE 'UTC')::numeric,
                to_char(moment AT TIME ZONE 'UTC', CASE
                    WHEN moment::timestamptz(3) = moment THEN '-MM-DD"T"HH24:MI:SS.MS"Z"'
                    ELSE '-MM-DD"T"HH24:MI:SS.US"Z"'
                END)
            )
        ELSE moment::text
    END
$$;

COMMENT ON FUNCTION system_timestamp_text(timestamptz) IS 'How answers show a moment, in UTC';

CREATE FUNCTION system_stored_time(shown json) RETURNS json
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
    parts text[] := regexp_match(shown::text, '^"([+-]\d{6,7})(-[^"]*)"$');
    iso_year integer := parts[1]::integer;
BEGIN
    RETURN CASE
        WHEN parts IS NULL THEN shown
        WHEN iso_year > 0 THEN to_json(concat(iso_year, parts[2]))
        ELSE to_json(concat(lpad((1 - iso_year)::text, 4, '0'), parts[2], ' BC'))
    END;
END
$$;

COMMENT ON FUNCTION system_stored_time(json) IS 'A date or moment as PostgreSQL reads it, from what answers show; any other value as it is';

CREATE OR REPLACE FUNCTION system_revision_row(row_type anyelement, data json, columns text[]) RETURNS SETOF anyelement
    LANGUAGE plpgsql STABLE ROWS 1 COST 5000 AS $$
DECLARE
    name text;
    value json;
    members text := '';
BEGIN
    FOREACH name IN ARRAY columns LOOP
        value := data -> name;
        IF value IS NULL THEN
            RETURN;
        END IF;
        IF value::text ~ '^"[+-]\d{6,7}-' AND EXISTS (
            SELECT FROM pg_type AS type
            JOIN pg_attribute AS attribute ON attribute.attrelid = type.typrelid
            WHERE type.oid = pg_typeof(row_type)
              AND attribute.attname = name
              AND attribute.atttypid IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
        ) THEN
            value := system_stored_time(value);
        END IF;
        members := concat(members, ',', to_json(name), ':', value);
    END LOOP;
    RETURN NEXT json_populate_record(row_type, concat('{', substr(members, 2), '}')::json);
EXCEPTION
    -- A column that has another type by now: the revision holds no item of today's table.
    WHEN data_exception OR integrity_constraint_violation THEN
        RETURN;
END
$$;
