-- What other programs do to the tables is found without a call, by a mark that every change leaves in the catalogue.

CREATE FUNCTION system_mark() RETURNS text
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

COMMENT ON FUNCTION system_mark() IS 'Differs when the tables, columns, keys, indexes, triggers, comments or types are others';
