-- Functions, arguments and variables have plain names; former names stay for services of the version before.

-- Rules of permissions are tried on the items that revisions hold, as rows of the items' table.
CREATE FUNCTION system_revision_row(row_type anyelement, data json, columns text[]) RETURNS SETOF anyelement
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
        members := concat(members, ',', to_json(name), ':', value);
    END LOOP;
    RETURN NEXT json_populate_record(row_type, concat('{', substr(members, 2), '}')::json);
EXCEPTION
    -- A column that has another type by now: the revision holds no item of today's table.
    WHEN data_exception OR integrity_constraint_violation THEN
        RETURN;
END
$$;

COMMENT ON FUNCTION system_revision_row(anyelement, json, text[]) IS 'The row of a table that a revision holds, with these columns only; no row if it does not hold all of them';

-- A write that is one statement tries the rules of permissions on what it has written.
CREATE FUNCTION system_require_rule(passes boolean) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF passes THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'a rule of a permission does not hold' USING ERRCODE = 'CM403';
END
$$;

COMMENT ON FUNCTION system_require_rule(boolean) IS 'Gives up the whole statement unless what it has written passes a rule';

-- A key that a client sends for a column with automatic keys advances the sequence, so that no later item gets the
-- same key.
CREATE FUNCTION system_column_sequence(table_name text, column_name text) RETURNS regclass
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
    WHERE attribute.attrelid = to_regclass(quote_ident(table_name))
      AND attribute.attname = column_name
    LIMIT 1
$$;

COMMENT ON FUNCTION system_column_sequence(text, text) IS 'The sequence that a column takes its values from, whoever owns it';

CREATE FUNCTION system_advance_sequence(table_name text, column_name text, keys bigint[]) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    sequence record;
    furthest numeric;
    half numeric;
    present numeric;
    steps numeric;
BEGIN
    SELECT
        seqrelid AS name,
        seqstart::numeric AS first,
        seqincrement::numeric AS increment,
        CASE WHEN seqincrement > 0 THEN least(seqmax, max_value) ELSE greatest(seqmin, -max_value - 1) END AS bound,
        seqcache AS cache_size
    INTO sequence
    FROM pg_sequence
    CROSS JOIN (
        -- A sequence that the column does not own may count further than the column does.
        WITH RECURSIVE types (type) AS (
            SELECT atttypid
            FROM pg_attribute
            WHERE attrelid = to_regclass(quote_ident(table_name))
              AND attname = column_name
            UNION ALL
            SELECT typbasetype
            FROM types
            JOIN pg_type ON pg_type.oid = type AND typtype = 'd'
        )
        SELECT min(
            CASE type
                WHEN 'smallint'::regtype THEN 32767
                WHEN 'integer'::regtype THEN 2147483647
                ELSE 9223372036854775807
            END::numeric
        ) AS max_value
        FROM types
    ) AS column_type
    WHERE seqrelid = system_column_sequence(table_name, column_name);
    IF NOT FOUND OR NOT has_sequence_privilege(sequence.name, 'USAGE') THEN
        RETURN true;  -- the write is good without the sequence
    END IF;
    -- Calls take turns, because a sequence that two set at once could go back. The lock has the former name of this
    -- function, so that calls which began before an upgrade take turns with those behind it.
    PERFORM pg_advisory_xact_lock(hashtextextended('system_pass_keys', sequence.name::bigint));
    present := coalesce(pg_sequence_last_value(sequence.name), sequence.first - sequence.increment);
    -- A leap goes half of the way at most: a single key, also one of a write that is refused, must not use up all the
    -- others. Behind that the sequence still follows keys that are near. Nothing comes behind the last key of all.
    half := sequence.first + (sequence.bound - sequence.first) / 2;
    SELECT CASE WHEN sequence.increment > 0 THEN max(key) ELSE min(key) END INTO furthest
    FROM unnest(keys) AS key
    WHERE (sequence.bound - key) * sequence.increment > 0
      AND (
          (half - key) * sequence.increment >= 0
          OR (key - present) / sequence.increment <= 10000
          OR abs(sequence.bound - sequence.first) < 65536  -- too few to be worth it
      );
    steps := coalesce(floor((furthest - present) / sequence.increment), 0);
    IF steps BETWEEN 1 AND 10000 AND sequence.cache_size = 1 THEN
        -- Writes without keys draw meanwhile, and take no turn. nextval never moves the sequence back; setval could, and
        -- is for leaps that no such writes make up for between two steps of this function.
        PERFORM nextval(sequence.name) FROM generate_series(1, steps::integer);
    ELSIF steps > 0 AND has_sequence_privilege(sequence.name, 'UPDATE') THEN
        PERFORM setval(sequence.name, (present + steps * sequence.increment)::bigint);
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'CM001';
EXCEPTION WHEN SQLSTATE 'CM001' THEN
    RETURN true;  -- the turn ends here and not with the transaction; the sequence stays where it is
END
$$;

COMMENT ON FUNCTION system_advance_sequence(text, text, bigint[]) IS 'Moves the sequence of a column behind keys that are given for it, and never back';

-- Web servers of the version before serve until they are restarted, and their statements call the functions below. A later
-- version drops them. They are in the language that they were in, because calls of them may be running while they change.
CREATE OR REPLACE FUNCTION system_held(kind anyelement, held json, names text[]) RETURNS SETOF anyelement
    LANGUAGE plpgsql STABLE ROWS 1 COST 5000 AS $$
BEGIN
    RETURN QUERY SELECT * FROM system_revision_row(kind, held, names);
END
$$;

COMMENT ON FUNCTION system_held(anyelement, json, text[]) IS 'The former name of system_revision_row(), for services of the version before';

CREATE OR REPLACE FUNCTION system_require(held boolean) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN system_require_rule(held);
END
$$;

COMMENT ON FUNCTION system_require(boolean) IS 'The former name of system_require_rule(), for services of the version before';

CREATE OR REPLACE FUNCTION system_sequence(counted text, named text) RETURNS regclass
    LANGUAGE sql STABLE AS $$
    SELECT system_column_sequence(counted, named)
$$;

COMMENT ON FUNCTION system_sequence(text, text) IS 'The former name of system_column_sequence(), for services of the version before';

CREATE OR REPLACE FUNCTION system_pass_keys(counted text, named text, keys bigint[]) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN system_advance_sequence(counted, named, keys);
END
$$;

COMMENT ON FUNCTION system_pass_keys(text, text, bigint[]) IS 'The former name of system_advance_sequence(), for services of the version before';

-- These keep their names and arguments.
CREATE OR REPLACE FUNCTION system_structure_fingerprint() RETURNS text
    LANGUAGE sql STABLE AS $$
    WITH tables AS MATERIALIZED (
        SELECT oid, hashtextextended(concat_ws(' ', relname, relkind, relhastriggers), oid::bigint) AS hash
        FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace
          AND relkind IN ('r', 'p', 'f', 'v', 'm')
          AND NOT relispartition
    ),
    reached AS MATERIALIZED (
        SELECT oid
        FROM system_reached_tables() AS oid
    ),
    types AS MATERIALIZED (  -- all but those of other installations; in public may be those of several
        SELECT type.oid, type.typtype, type.xmin
        FROM pg_type AS type
        WHERE typtype IN ('d', 'e')
          AND (
              typnamespace IN (current_schema()::regnamespace, to_regnamespace('public'))
              OR typnamespace NOT IN (SELECT relnamespace FROM pg_class WHERE relname = 'system_migrations')
          )
    ),
    hashes AS (
        -- Without what TRUNCATE, VACUUM, GRANT and the like leave behind, which change no structure.
        SELECT hash
        FROM tables
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, attrelid::bigint * 2048 + attnum)
        FROM pg_attribute
        WHERE attnum > 0 AND attrelid IN (SELECT oid FROM tables)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_constraint
        WHERE conrelid IN (SELECT oid FROM tables) OR contypid IN (SELECT oid FROM types)
        UNION ALL
        -- What goes with rows of ours may lie elsewhere: in partitions, and in tables of other schemas.
        SELECT hashint8extended(con.xmin::text::bigint, con.oid::bigint)
        FROM pg_constraint AS con
        JOIN pg_class AS class ON class.oid = con.conrelid AND class.relpersistence <> 't'
        WHERE con.contype = 'f'
          AND con.conparentid = 0
          AND con.confdeltype IN ('c', 'n', 'd')
          AND con.conrelid NOT IN (SELECT oid FROM tables)
          AND con.confrelid IN (SELECT oid FROM reached)
        UNION ALL
        SELECT hashint8extended(inhparent::bigint, inhrelid::bigint)
        FROM pg_inherits
        JOIN pg_class AS class ON class.oid = inhrelid
        WHERE class.relkind IN ('r', 'p')
          AND class.relpersistence <> 't'
          AND NOT class.relispartition
          AND inhrelid IN (SELECT oid FROM reached)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, indexrelid::bigint)
        FROM pg_index
        WHERE indrelid IN (SELECT oid FROM tables)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_trigger
        WHERE tgrelid IN (SELECT oid FROM tables) AND NOT tgisinternal
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, objoid::bigint * 2048 + objsubid)
        FROM pg_description
        WHERE classoid = 'pg_class'::regclass AND objoid IN (SELECT oid FROM tables)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_enum
        WHERE enumtypid IN (SELECT oid FROM types)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM types
        WHERE typtype = 'd'
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_extension
    )
    SELECT sum(hash)::text
    FROM hashes
$$;

CREATE OR REPLACE FUNCTION system_make_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql
SET timezone = 'UTC'
AS $$
DECLARE
    month record;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' system_make_partitions'));
    FOR month IN
        SELECT format('%I.%I', n.nspname, c.relname) AS parent,
               format('%I.%I', n.nspname, c.relname || '_default') AS default_partition,
               format('%I.%I', n.nspname, c.relname || to_char(first, '_YYYY_MM')) AS name,
               time_column,
               first,
               first + interval '1 month' AS next
          FROM (VALUES ('system_activity'::regclass, 'timestamp'), ('system_revisions'::regclass, 'created'))
               AS history (id, time_column)
          JOIN pg_class AS c ON c.oid = history.id
          JOIN pg_namespace AS n ON n.oid = c.relnamespace
         CROSS JOIN generate_series(0, months_ahead) AS months
         CROSS JOIN LATERAL (SELECT date_trunc('month', now()) + months * interval '1 month' AS first) AS start
    LOOP
        CONTINUE WHEN to_regclass(month.name) IS NOT NULL;
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', month.default_partition);
        EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING CONSTRAINTS)', month.name, month.parent);
        EXECUTE format(
            'WITH moved AS (DELETE FROM %s WHERE %I >= %L AND %2$I < %4$L RETURNING *) '
            'INSERT INTO %5$s SELECT * FROM moved',
            month.default_partition, month.time_column, month.first, month.next, month.name
        );
        EXECUTE format(
            'ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
            month.parent, month.name, month.first, month.next
        );
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

CREATE OR REPLACE FUNCTION system_prune_history(keep interval, OUT dropped text[], OUT deleted bigint)
LANGUAGE plpgsql
SET timezone = 'UTC'
AS $$
DECLARE
    oldest timestamptz := date_trunc('month', now() - keep);
    month record;
    old_rows bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' system_make_partitions'));
    dropped := '{}';
    deleted := 0;
    FOR month IN
        SELECT child.relname AS name, format('%I.%I', n.nspname, child.relname) AS table_name
          FROM pg_inherits
          JOIN pg_class AS child ON child.oid = inhrelid
          JOIN pg_namespace AS n ON n.oid = child.relnamespace
         WHERE inhparent IN ('system_activity'::regclass, 'system_revisions'::regclass)
           AND child.relname ~ '^system_(activity|revisions)_\d{4}_\d\d$'
           AND to_date(right(child.relname, 7), 'YYYY_MM') < oldest
         ORDER BY child.relname
    LOOP
        EXECUTE format('DROP TABLE %s', month.table_name);
        dropped := dropped || month.name::text;
    END LOOP;
    DELETE FROM system_activity_default WHERE "timestamp" < oldest;
    GET DIAGNOSTICS old_rows = ROW_COUNT;
    deleted := deleted + old_rows;
    DELETE FROM system_revisions_default WHERE created < oldest;
    GET DIAGNOSTICS old_rows = ROW_COUNT;
    deleted := deleted + old_rows;
END
$$;

COMMENT ON TABLE system_collections IS 'Settings of collections; a row without a table of that name is a folder, and a table without a row is usable';
COMMENT ON TABLE system_fields IS 'Settings of fields; a row whose collection has no such column is an alias field';
