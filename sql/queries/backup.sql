-- name: describe_database
-- The schema of the service, the version of the server as a number, and whether the schema holds a service.
SELECT
    current_schema(),
    current_setting('server_version_num')::integer,
    to_regclass(format('%I.system_migrations', current_schema())) IS NOT NULL;

-- name: export_snapshot
-- The name by which another session sees exactly the rows that this transaction sees.
SELECT pg_export_snapshot();

-- name: list_backup_tables
-- The tables of the schema that hold rows, with their sizes and the columns whose values are stored. Partitions are
-- tables of their own here; their parents hold no rows. What an extension brings along is left out.
SELECT
    class.relname::text,
    pg_table_size(class.oid),
    ARRAY (
        SELECT attname::text
        FROM pg_attribute
        WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
        ORDER BY attnum
    )
FROM pg_class AS class
WHERE class.relnamespace = current_schema()::regnamespace
  AND class.relkind = 'r'
  AND class.relpersistence <> 't'
  AND NOT EXISTS (
    SELECT
    FROM pg_depend
    WHERE classid = 'pg_class'::regclass AND objid = class.oid AND deptype = 'e'
  )
ORDER BY class.relname;

-- name: list_sequences
-- The sequences of the schema.
SELECT relname::text
FROM pg_class
WHERE relnamespace = current_schema()::regnamespace
  AND relkind = 'S'
ORDER BY relname;

-- name: list_filled_views
-- The materialized views that hold rows, in the order in which they were made.
SELECT relname::text
FROM pg_class
WHERE relnamespace = current_schema()::regnamespace
  AND relkind = 'm'
  AND relispopulated
ORDER BY oid;

-- name: list_own_objects
-- What somebody has made in the schema beside tables with rows; the service's own names begin as those of its tables.
WITH kept AS MATERIALIZED (
    SELECT classid, objid
    FROM pg_depend
    -- Of extensions, sequences of columns, functions of types.
    WHERE deptype = 'e'
       OR (deptype IN ('a', 'i') AND classid IN ('pg_class'::regclass, 'pg_proc'::regclass) AND objid <> refobjid)
)
SELECT name
FROM (
    SELECT
        CASE relkind
            WHEN 'p' THEN 'the table '
            WHEN 'S' THEN 'the sequence '
            ELSE 'the view '
        END || relname AS name,
        relname AS own_name
    FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace
      AND relkind IN ('p', 'v', 'm', 'f', 'S')
      AND ('pg_class'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
    UNION ALL
    SELECT 'the function ' || proname, proname
    FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace
      AND ('pg_proc'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
    UNION ALL
    SELECT 'the type ' || typname, typname
    FROM pg_type
    WHERE typnamespace = current_schema()::regnamespace
      AND typtype IN ('e', 'd', 'r')
      AND ('pg_type'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
) AS objects
WHERE own_name !~ '^(system_|procrastinate_)'
ORDER BY name;

-- name: list_extensions
-- The extensions of the database with their schemas; plpgsql is in every database.
SELECT extname::text, nspname::text
FROM pg_extension
JOIN pg_namespace ON pg_namespace.oid = extnamespace
WHERE extname <> 'plpgsql'
ORDER BY extname;

-- name: list_storages_of_files
-- The storage locations that files name.
SELECT DISTINCT storage
FROM system_files
WHERE filename_disk IS NOT NULL
ORDER BY storage;

-- name: sum_file_sizes
-- The bytes of all files, as far as their rows say.
SELECT coalesce(sum(filesize), 0)::bigint
FROM system_files;

-- name: list_files_with_content
-- A page of the files that have a content, behind an id.
SELECT id::text, storage, filename_disk, filename_download
FROM system_files
WHERE filename_disk IS NOT NULL AND ($1::text IS NULL OR id > $1::text::uuid)
ORDER BY id
LIMIT 1000;

-- name: find_content_of_file
-- Where the content of a file belongs.
SELECT storage, filename_disk
FROM system_files
WHERE id = $1::text::uuid;

-- name: list_drops
-- The statements that remove everything from the schema but what extensions have brought.
WITH kept AS MATERIALIZED (
    SELECT classid, objid
    FROM pg_depend
    WHERE deptype = 'e'
),
relations AS (
    SELECT
        CASE relkind
            WHEN 'v' THEN 'VIEW'
            WHEN 'm' THEN 'MATERIALIZED VIEW'
            WHEN 'S' THEN 'SEQUENCE'
            WHEN 'f' THEN 'FOREIGN TABLE'
            WHEN 'c' THEN 'TYPE'
            ELSE 'TABLE'
        END AS kind,
        format('%I.%I', current_schema(), relname) AS name
    FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace
      AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f', 'c')
      AND NOT relispartition
      AND ('pg_class'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
      -- The row type of an extension's own type.
      AND (relkind <> 'c' OR ('pg_type'::regclass, reltype) NOT IN (SELECT classid, objid FROM kept))
),
operators AS (
    SELECT
        'OPERATOR' AS kind,
        format(
            '%I.%s (%s, %s)',
            current_schema(),
            oprname,
            CASE WHEN oprleft = 0 THEN 'NONE' ELSE oprleft::regtype::text END,
            oprright::regtype
        ) AS name
    FROM pg_operator
    WHERE oprnamespace = current_schema()::regnamespace
      AND ('pg_operator'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
),
operator_families AS (
    -- With their classes.
    SELECT 'OPERATOR FAMILY' AS kind, format('%I.%I USING %I', current_schema(), opfname, amname) AS name
    FROM pg_opfamily AS family
    JOIN pg_am AS method ON method.oid = opfmethod
    WHERE opfnamespace = current_schema()::regnamespace
      AND ('pg_opfamily'::regclass, family.oid) NOT IN (SELECT classid, objid FROM kept)
),
routines AS (
    SELECT
        CASE prokind
            WHEN 'a' THEN 'AGGREGATE'
            ELSE 'ROUTINE'
        END AS kind,
        format('%I.%I(%s)', current_schema(), proname, pg_get_function_identity_arguments(oid)) AS name
    FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace
      -- Nor functions that belong to a type.
      AND ('pg_proc'::regclass, oid) NOT IN (SELECT classid, objid FROM pg_depend WHERE deptype IN ('e', 'i'))
),
text_search AS (
    SELECT 'TEXT SEARCH CONFIGURATION' AS kind, format('%I.%I', current_schema(), cfgname) AS name
    FROM pg_ts_config
    WHERE cfgnamespace = current_schema()::regnamespace
      AND ('pg_ts_config'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
    UNION ALL
    SELECT 'TEXT SEARCH DICTIONARY', format('%I.%I', current_schema(), dictname)
    FROM pg_ts_dict
    WHERE dictnamespace = current_schema()::regnamespace
      AND ('pg_ts_dict'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
),
types AS (
    SELECT 'TYPE' AS kind, format('%I.%I', current_schema(), typname) AS name
    FROM pg_type
    WHERE typnamespace = current_schema()::regnamespace
      AND typtype IN ('e', 'd', 'r')
      AND ('pg_type'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
),
collations AS (
    SELECT 'COLLATION' AS kind, format('%I.%I', current_schema(), collname) AS name
    FROM pg_collation
    WHERE collnamespace = current_schema()::regnamespace
      AND ('pg_collation'::regclass, oid) NOT IN (SELECT classid, objid FROM kept)
)
SELECT format('DROP %s IF EXISTS %s CASCADE', kind, name)
FROM (
    SELECT 1 AS position, kind, name FROM relations
    UNION ALL
    SELECT 2, kind, name FROM operators
    UNION ALL
    SELECT 3, kind, name FROM operator_families
    UNION ALL
    SELECT 4, kind, name FROM routines
    UNION ALL
    SELECT 5, kind, name FROM text_search
    UNION ALL
    SELECT 6, kind, name FROM types
    UNION ALL
    SELECT 7, kind, name FROM collations
) AS objects
ORDER BY position, name;

-- name: list_foreign_objects
-- What is not of the schema, but may depend on it: removing its objects must not remove these as well. Each has its
-- numbers, for how a name is written depends on what else there is.
WITH schemas AS MATERIALIZED (
    SELECT oid, quote_ident(nspname) AS name
    FROM pg_namespace
    WHERE oid <> current_schema()::regnamespace
      AND nspname <> 'information_schema'
      AND nspname !~ '^pg_'
),
relations AS MATERIALIZED (
    SELECT class.oid, format('%s.%I', schemas.name, relname) AS name
    FROM pg_class AS class
    JOIN schemas ON schemas.oid = relnamespace
    WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'c')
),
objects AS (
    SELECT 'pg_class'::regclass AS catalogue, oid, 0 AS part, name
    FROM relations
    UNION ALL
    SELECT 'pg_class'::regclass, attrelid, attnum, format('the column %I of %s', attname, name)
    FROM pg_attribute
    JOIN relations ON relations.oid = attrelid
    WHERE attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT 'pg_attrdef'::regclass, pg_attrdef.oid, 0, format('the default of %I of %s', attname, name)
    FROM pg_attrdef
    JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
    JOIN relations ON relations.oid = adrelid
    UNION ALL
    SELECT 'pg_constraint'::regclass, pg_constraint.oid, 0, format('%s of %s', conname, name)
    FROM pg_constraint
    JOIN relations ON relations.oid = conrelid
    UNION ALL
    SELECT 'pg_index'::regclass, indexrelid, 0, format('the index %s of %s', indexrelid::regclass, name)
    FROM pg_index
    JOIN relations ON relations.oid = indrelid
    UNION ALL
    SELECT 'pg_trigger'::regclass, pg_trigger.oid, 0, format('the trigger %I of %s', tgname, name)
    FROM pg_trigger
    JOIN relations ON relations.oid = tgrelid
    WHERE NOT tgisinternal
    UNION ALL
    SELECT 'pg_rewrite'::regclass, pg_rewrite.oid, 0, format('the rule %I of %s', rulename, name)
    FROM pg_rewrite
    JOIN relations ON relations.oid = ev_class
    UNION ALL
    SELECT 'pg_policy'::regclass, pg_policy.oid, 0, format('the policy %I of %s', polname, name)
    FROM pg_policy
    JOIN relations ON relations.oid = polrelid
    UNION ALL
    SELECT 'pg_proc'::regclass, pg_proc.oid, 0, format('the function %s.%I', schemas.name, proname)
    FROM pg_proc
    JOIN schemas ON schemas.oid = pronamespace
    UNION ALL
    SELECT 'pg_type'::regclass, pg_type.oid, 0, format('the type %s.%I', schemas.name, typname)
    FROM pg_type
    JOIN schemas ON schemas.oid = typnamespace
    WHERE typtype IN ('d', 'r')
    UNION ALL
    SELECT
        'pg_publication_rel'::regclass,
        pg_publication_rel.oid,
        0,
        format('the publication %I of %s', pubname, prrelid::regclass)
    FROM pg_publication_rel
    JOIN pg_publication ON pg_publication.oid = prpubid
    UNION ALL
    SELECT 'pg_event_trigger'::regclass, oid, 0, format('the event trigger %I', evtname)
    FROM pg_event_trigger
)
SELECT format('%s %s %s', catalogue::oid, oid, part), name
FROM objects
ORDER BY name;

-- name: has_schema
-- Whether there is a schema of this name.
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1::text);

-- name: hides_public
-- Whether a new schema would come before `public` in the sessions of an installation there: by default they look first
-- into the schema that has the name of their role.
SELECT $1::text = current_user AND EXISTS (
    SELECT
    FROM pg_class AS class
    JOIN pg_roles AS role ON role.oid = class.relowner
    WHERE class.oid = to_regclass('public.system_version')
      AND role.rolname = current_user
);

-- name: pass_counters_of_version
-- Moves the counters behind those of before: every process reads anew what it keeps in memory.
UPDATE system_version
SET structure = greatest(structure, $1::text::bigint) + 1,
    access = greatest(access, $2::text::bigint) + 1,
    flows = greatest(flows, $3::text::bigint) + 1;

-- name: keep_contents
-- Keeps contents of files from being removed until this session ends.
SELECT pg_advisory_lock_shared(hashtextextended(current_schema() || ' system_backup', 0));

-- name: are_contents_kept
-- Tells whether a backup runs, which needs the contents that were there when it began.
SELECT EXISTS (
    SELECT
    FROM pg_locks AS lock
    JOIN pg_database AS database ON database.oid = lock.database
    WHERE database.datname = current_database()
      AND lock.locktype = 'advisory'
      AND lock.objsubid = 1
      AND (lock.classid::bigint << 32 | lock.objid::bigint)
      = hashtextextended(current_schema() || ' system_backup', 0)
);

-- name: set_sequence
-- Sets where a sequence of the schema stands.
SELECT setval(format('%I.%I', current_schema(), $1::text)::regclass, $2::text::bigint, $3::text::boolean);

-- name: use_search_path
-- Sets the search path of the session again: structures that PostgreSQL has written out empty the search path.
SELECT set_config('search_path', $1::text, false);

-- name: limit_waiting_for_locks
-- How many milliseconds the transaction waits for a lock; 0 is without an end.
SELECT set_config('lock_timeout', $1::text, true);

-- name: get_search_path
-- The search path of the session.
SELECT current_setting('search_path');

-- name: list_available_extensions
-- The extensions that the server can bring.
SELECT name::text
FROM pg_available_extensions;

-- name: list_key_columns
-- The columns of a table's primary key, in order.
SELECT attribute.attname::text
FROM pg_index AS index
CROSS JOIN LATERAL unnest(index.indkey::smallint[]) WITH ORDINALITY AS part (number, position)
JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = part.number
WHERE index.indrelid = to_regclass(format('%I.%I', current_schema(), $1::text)) AND index.indisprimary
ORDER BY part.position;

-- name: list_identities
-- The columns of a table that only PostgreSQL gives values.
SELECT attname::text
FROM pg_attribute
WHERE attrelid = to_regclass(format('%I.%I', current_schema(), $1::text))
  AND attnum > 0
  AND attidentity = 'a'
ORDER BY attnum;

-- name: list_given_numbers
-- The columns of a table with numbers that may come from a sequence. Texts are not counted, as 'INVOICE-' || nextval(…),
-- nor what PostgreSQL does not compare with all numbers.
SELECT attname::text
FROM pg_attribute
JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = to_regclass(format('%I.%I', current_schema(), $1::text))
  AND attnum > 0
  AND typcategory = 'N'
  AND atttypid NOT IN ('money'::regtype, 'oid'::regtype)
  AND (atthasdef OR attidentity <> '')
ORDER BY attnum;

-- name: list_foreign_keys_of_table
-- The foreign keys of a table: its columns, the table and columns that they name, and the collations of these, in which
-- PostgreSQL compares the two.
SELECT
    con.conname::text,
    ARRAY (
        SELECT attname::text
        FROM unnest(con.conkey) WITH ORDINALITY AS part (number, position)
        JOIN pg_attribute ON attrelid = con.conrelid AND attnum = part.number
        ORDER BY part.position
    ),
    namespace.nspname::text,
    target.relname::text,
    ARRAY (
        SELECT attname::text
        FROM unnest(con.confkey) WITH ORDINALITY AS part (number, position)
        JOIN pg_attribute ON attrelid = con.confrelid AND attnum = part.number
        ORDER BY part.position
    ),
    ARRAY (
        SELECT nullif(attcollation, 0)::regcollation::text
        FROM unnest(con.confkey) WITH ORDINALITY AS part (number, position)
        JOIN pg_attribute ON attrelid = con.confrelid AND attnum = part.number
        ORDER BY part.position
    )
FROM pg_constraint AS con
JOIN pg_class AS target ON target.oid = con.confrelid
JOIN pg_namespace AS namespace ON namespace.oid = target.relnamespace
WHERE con.contype = 'f'
  AND con.conparentid = 0
  AND con.conrelid = to_regclass(format('%I.%I', current_schema(), $1::text))
ORDER BY con.conname;

-- name: list_columns_of_table
-- The columns of a table of the schema that can be written; none where there is no such table.
SELECT attname::text
FROM pg_attribute
WHERE attrelid = to_regclass(format('%I.%I', current_schema(), $1::text))
  AND attnum > 0
  AND NOT attisdropped
  AND attgenerated = ''
ORDER BY attnum;

-- name: has_automatic_keys
-- Whether a column takes its values from a sequence.
SELECT system_column_sequence($1::text, $2::text) IS NOT NULL;

-- name: pass_restored_keys
-- Moves the sequence of a column behind a key.
SELECT system_advance_sequence($1::text, $2::text, ARRAY[$3::text::bigint]);
