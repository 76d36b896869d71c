-- The mark of the structure also follows foreign keys of partitions and of other schemas, and inheritance.

CREATE OR REPLACE FUNCTION system_mark() RETURNS text
    LANGUAGE sql STABLE AS $$
    WITH tables AS MATERIALIZED (
        SELECT oid, hashtextextended(concat_ws(' ', relname, relkind, relhastriggers), oid::bigint) AS mark
        FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace
          AND relkind IN ('r', 'p', 'f', 'v', 'm')
          AND NOT relispartition
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
        WHERE conrelid IN (SELECT oid FROM tables) OR contypid <> 0
        UNION ALL
        -- What goes with rows of ours may lie elsewhere: in partitions, and in tables of other schemas.
        SELECT hashint8extended(con.xmin::text::bigint, con.oid::bigint)
        FROM pg_constraint AS con
        JOIN pg_class AS class ON class.oid = con.conrelid AND class.relpersistence <> 't'
        WHERE con.contype = 'f'
          AND con.conparentid = 0
          AND con.confdeltype IN ('c', 'n', 'd')
          AND con.conrelid NOT IN (SELECT oid FROM tables)
        UNION ALL
        SELECT hashint8extended(inhparent::bigint, inhrelid::bigint)
        FROM pg_inherits
        JOIN pg_class AS class ON class.oid = inhrelid
        WHERE class.relkind IN ('r', 'p')
          AND class.relpersistence <> 't'
          AND NOT class.relispartition
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
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_type
        WHERE typtype = 'd'
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_extension
    )
    SELECT sum(mark)::text
    FROM marks
$$;
