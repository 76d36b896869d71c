-- Installations in several schemas of one database do not wait for each other, and do not notice each other's changes.

-- The lock of maintenance was one for the whole database.
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOREACH routine IN ARRAY ARRAY['system_make_partitions(integer)', 'system_prune_history(interval)']::regprocedure[]
    LOOP
        EXECUTE replace(
            pg_get_functiondef(routine),
            'hashtext(''system_make_partitions'')',
            'hashtext(current_schema() || '' system_make_partitions'')'
        );
    END LOOP;
END
$$;

-- Tables of other schemas count where rows of them go with rows of ours, directly or by way of others.
CREATE FUNCTION system_reached_tables() RETURNS SETOF oid
    LANGUAGE sql STABLE AS $$
    WITH RECURSIVE links (near, far) AS MATERIALIZED (
        SELECT confrelid, conrelid
        FROM pg_constraint
        WHERE contype = 'f' AND confdeltype IN ('c', 'n', 'd')
        UNION ALL
        SELECT inhparent, inhrelid
        FROM pg_inherits
        UNION ALL
        SELECT inhrelid, inhparent
        FROM pg_inherits
    ),
    reached (oid) AS (
        SELECT oid
        FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace
          AND relkind IN ('r', 'p', 'f', 'v', 'm')
        UNION
        SELECT links.far
        FROM reached
        JOIN links ON links.near = reached.oid
    )
    SELECT oid
    FROM reached
$$;

COMMENT ON FUNCTION system_reached_tables() IS 'The tables of the schema, and those of other schemas whose rows a deletion of ours may reach';

CREATE OR REPLACE FUNCTION system_mark() RETURNS text
    LANGUAGE sql STABLE AS $$
    WITH tables AS MATERIALIZED (
        SELECT oid, hashtextextended(concat_ws(' ', relname, relkind, relhastriggers), oid::bigint) AS mark
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
    marks AS (
        -- Without what TRUNCATE, VACUUM, GRANT and the like leave behind, which change no structure.
        SELECT mark
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
    SELECT sum(mark)::text
    FROM marks
$$;
