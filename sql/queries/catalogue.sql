-- name: load_catalogue
-- All rows of which the model of collections, fields and relations is made, at one moment and in one round trip; of the
-- collections only those whose fingerprint is not that in $1, an object of fingerprints by names.
WITH RECURSIVE namespace AS MATERIALIZED (  -- looked up once and not for each row
    SELECT current_schema()::regnamespace::oid AS oid
),
tables AS MATERIALIZED (
    SELECT
        class.oid,
        class.relname AS name,
        class.relkind IN ('v', 'm') AS is_view,
        CASE WHEN class.relkind = 'v'
            THEN ARRAY(  -- the bits of tgtype; 64 is INSTEAD OF
                SELECT action
                FROM (VALUES (4, 'create'), (16, 'update'), (8, 'delete')) AS events (bit, action)
                WHERE EXISTS (
                    SELECT FROM pg_trigger WHERE tgrelid = class.oid AND tgtype & 64 <> 0 AND tgtype & bit <> 0
                )
            )
            ELSE '{}'
        END AS triggered_actions,
        (  -- whether a write may change more than its own row: triggers, ON UPDATE, partitions and inheritance
            class.oid IN (SELECT tgrelid FROM pg_trigger WHERE NOT tgisinternal)
            OR class.oid IN (
                SELECT foreign_key.confrelid
                FROM pg_constraint AS foreign_key
                WHERE foreign_key.contype = 'f'
                  AND foreign_key.confupdtype IN ('c', 'n', 'd')
                  AND NOT EXISTS (  -- the service never changes a primary key
                      SELECT FROM pg_constraint AS key
                      WHERE key.conrelid = foreign_key.confrelid AND key.contype = 'p'
                        AND foreign_key.confkey <@ key.conkey
                  )
            )
            OR class.relkind <> 'p' AND (
                class.oid IN (SELECT inhrelid FROM pg_inherits) OR class.oid IN (SELECT inhparent FROM pg_inherits)
            )
        ) AS does_more,
        description.description AS comment
    FROM namespace
    JOIN pg_class AS class ON class.relnamespace = namespace.oid
    LEFT JOIN pg_description AS description
        ON description.objoid = class.oid AND description.classoid = 'pg_class'::regclass AND description.objsubid = 0
    WHERE class.relkind IN ('r', 'p', 'f', 'v', 'm')
      AND NOT class.relispartition
      AND has_table_privilege(class.oid, 'SELECT')
      AND class.oid NOT IN (  -- tables of extensions hold no content of the project
          SELECT objid
          FROM pg_depend
          WHERE classid = 'pg_class'::regclass
            AND refclassid = 'pg_extension'::regclass
            AND deptype = 'e'
      )
),
attributes AS MATERIALIZED (
    SELECT
        tables.name AS table_name,
        attribute.attrelid,
        attribute.attnum,
        attribute.attname,
        attribute.atttypid,
        attribute.atttypmod,
        attribute.attcollation,
        attribute.attnotnull,
        attribute.attgenerated,
        attribute.attidentity,
        attribute.atthasdef
    FROM tables
    JOIN pg_attribute AS attribute ON attribute.attrelid = tables.oid
    WHERE attribute.attnum > 0
      AND NOT attribute.attisdropped
),
domains AS (  -- a domain may be over another one
    SELECT
        oid AS domain,
        typbasetype AS base,
        typtypmod AS modifier,
        typnotnull AS not_null,
        typdefault AS default_value
    FROM pg_type
    WHERE typtype = 'd'
    UNION ALL
    SELECT
        domains.domain,
        type.typbasetype,
        type.typtypmod,
        domains.not_null OR type.typnotnull,
        coalesce(domains.default_value, type.typdefault)
    FROM domains
    JOIN pg_type AS type ON type.oid = domains.base
    WHERE type.typtype = 'd'
),
types AS MATERIALIZED (  -- the type behind all domains over it, and the element type of arrays of simple types
    SELECT
        whole.oid,
        type.oid AS base,
        type.typname AS name,
        format_type(type.oid, -1) AS cast,
        domains.modifier,
        coalesce(domains.not_null, FALSE) AS not_null,
        domains.default_value,
        CASE WHEN type.typtype = 'e'
            THEN ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = type.oid ORDER BY enumsortorder)
        END AS choices,
        simple.typname AS element
    FROM (SELECT DISTINCT atttypid FROM attributes) AS used (oid)
    JOIN pg_type AS whole ON whole.oid = used.oid
    LEFT JOIN (domains JOIN pg_type AS last ON last.oid = domains.base AND last.typtype <> 'd')
        ON domains.domain = whole.oid
    JOIN pg_type AS type ON type.oid = coalesce(domains.base, whole.oid)
    LEFT JOIN pg_type AS element ON element.oid = type.typelem AND element.typarray = type.oid
    LEFT JOIN (domains AS inside JOIN pg_type AS base ON base.oid = inside.base AND base.typtype <> 'd')
        ON inside.domain = element.oid
    LEFT JOIN pg_type AS simple
        ON simple.oid = coalesce(inside.base, element.oid) AND simple.typtype IN ('b', 'e', 'r', 'm')
       AND simple.typelem = 0
),
columns AS MATERIALIZED (
    SELECT
        attribute.table_name,
        attribute.attname AS name,
        format_type(attribute.atttypid, attribute.atttypmod) AS data_type,
        types.cast,
        types.name AS base_type,
        types.base <> types.oid AS is_domain,
        coalesce(definition.expression, types.default_value) AS default_value,
        CASE WHEN types.name IN ('varchar', 'bpchar') AND size.modifier > 4
            THEN size.modifier - 4
        END AS max_length,
        CASE WHEN types.name = 'numeric' AND size.modifier > 4
            THEN ((size.modifier - 4) >> 16) & 65535
        END AS precision,
        CASE WHEN types.name = 'numeric' AND size.modifier > 4
            THEN (size.modifier - 4) & 2047
        END AS scale,
        NOT (attribute.attnotnull OR types.not_null) AS nullable,
        attribute.attgenerated <> '' OR attribute.attidentity = 'a' AS generated,
        attribute.attidentity <> ''
            OR coalesce(definition.expression ~ '^nextval\(''([^'']|'''')+''::regclass\)$', FALSE)
            AS auto_increment,
        types.choices,
        types.element,
        description.description AS comment,
        attribute.attnum AS position
    FROM attributes AS attribute
    JOIN types ON types.oid = attribute.atttypid
    CROSS JOIN LATERAL (SELECT coalesce(types.modifier, attribute.atttypmod)) AS size (modifier)
    LEFT JOIN (
        SELECT adrelid, adnum, pg_get_expr(adbin, adrelid) AS expression FROM pg_attrdef OFFSET 0
    ) AS definition ON definition.adrelid = attribute.attrelid AND definition.adnum = attribute.attnum
    LEFT JOIN pg_description AS description
        ON description.objoid = attribute.attrelid
       AND description.classoid = 'pg_class'::regclass
       AND description.objsubid = attribute.attnum
),
keys AS MATERIALIZED (
    SELECT
        tables.name AS table_name,
        con.conname AS name,
        con.contype AS kind,
        ARRAY(
            SELECT (SELECT attname FROM pg_attribute WHERE attrelid = con.conrelid AND attnum = key.number)
            FROM unnest(con.conkey) WITH ORDINALITY AS key (number, position)
            ORDER BY key.position
        ) AS columns,
        target.relname AS foreign_table,
        ARRAY(
            SELECT (SELECT attname FROM pg_attribute WHERE attrelid = con.confrelid AND attnum = key.number)
            FROM unnest(con.confkey) WITH ORDINALITY AS key (number, position)
            ORDER BY key.position
        ) AS foreign_columns,
        con.confupdtype AS on_update,
        con.confdeltype AS on_delete,
        con.convalidated AS is_checked
    FROM tables
    JOIN pg_constraint AS con ON con.conrelid = tables.oid
    LEFT JOIN pg_class AS target ON target.oid = con.confrelid
    WHERE con.contype IN ('p', 'u', 'f')
      AND con.conparentid = 0
      -- tables of other schemas are no collections
      AND (con.confrelid = 0 OR target.relnamespace = (SELECT oid FROM namespace))
),
reached AS MATERIALIZED (  -- those of other schemas that deletions cannot reach are those of other installations
    SELECT oid
    FROM system_reached_tables() AS oid
),
bodies AS (  -- all reached tables that store rows; the schema is NULL for the service's own
    SELECT
        class.oid,
        class.relname AS name,
        CASE WHEN class.relnamespace <> namespace.oid THEN class.relnamespace::regnamespace::name END AS schema,
        class.relispartition AS is_partition,
        class.relnamespace AS namespace
    FROM namespace
    CROSS JOIN pg_class AS class
    WHERE class.relkind IN ('r', 'p')
      AND class.relpersistence <> 't'
      AND class.oid IN (SELECT oid FROM reached)
),
parts AS (  -- tables whose rows are also rows of another table: partitions, and those that inherit
    SELECT
        child.name,
        child.schema,
        child.is_partition,
        parent.name AS parent_name,
        parent.schema AS parent_schema
    FROM pg_inherits
    JOIN bodies AS child ON child.oid = inhrelid
    JOIN bodies AS parent ON parent.oid = inhparent
),
actions AS MATERIALIZED (
    -- ON DELETE of foreign keys, for the history; left out where the service may not read or change the rows
    SELECT
        con.conname AS name,
        con.confdeltype AS on_delete,
        source.name AS table_name,
        source.schema,
        target.name AS foreign_table,
        target.schema AS foreign_schema,
        own.columns,
        own.foreign_columns,
        own.changed
    FROM pg_constraint AS con
    JOIN bodies AS source ON source.oid = con.conrelid
    JOIN bodies AS target ON target.oid = con.confrelid
    -- In PostgreSQL 14, which always changes the whole key, only the NULL has this name; before 18, where all keys
    -- are enforced, only the TRUE.
    CROSS JOIN (SELECT NULL::int2[] AS confdelsetcols, TRUE AS conenforced) AS absent
    CROSS JOIN LATERAL (
        SELECT
            (SELECT confdelsetcols FROM pg_constraint AS listing WHERE listing.oid = con.oid),
            (SELECT conenforced FROM pg_constraint AS listing WHERE listing.oid = con.oid)
        OFFSET 0
    ) AS listed (numbers, is_enforced)
    CROSS JOIN LATERAL (
        SELECT
            array_agg(key.name ORDER BY key.position) AS columns,
            array_agg(key.foreign_name ORDER BY key.position) AS foreign_columns,
            array_agg(key.name ORDER BY key.position) FILTER (
                WHERE coalesce(listed.numbers, '{}') = '{}' OR key.number = ANY (listed.numbers)
            ) AS changed
        FROM (
            SELECT
                number,
                position,
                (SELECT attname FROM pg_attribute WHERE attrelid = con.conrelid AND attnum = number) AS name,
                (SELECT attname FROM pg_attribute WHERE attrelid = con.confrelid AND attnum = foreign_number)
                    AS foreign_name
            FROM unnest(con.conkey, con.confkey) WITH ORDINALITY AS pairs (number, foreign_number, position)
        ) AS key
    ) AS own
    WHERE con.contype = 'f'
      AND con.confdeltype IN ('c', 'n', 'd')
      AND con.conparentid = 0
      AND listed.is_enforced
      AND has_schema_privilege(source.namespace, 'USAGE')
      AND has_schema_privilege(target.namespace, 'USAGE')
      AND has_table_privilege(source.oid, 'SELECT')
      AND has_table_privilege(target.oid, 'SELECT')
      AND has_any_column_privilege(source.oid, 'UPDATE')
),
indexes AS MATERIALIZED (
    SELECT
        attribute.table_name,
        class.relname AS name,
        attribute.attname AS column_name,
        index.indisunique AS is_unique
    FROM pg_index AS index
    JOIN pg_class AS class ON class.oid = index.indexrelid
    JOIN attributes AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = index.indkey[0]
    WHERE index.indnkeyatts = 1
      AND index.indpred IS NULL
      AND index.indisvalid
),
search_indexes AS MATERIALIZED (  -- for parts of words, and for whole words, which former versions made
    SELECT
        tables.name AS table_name,
        attribute.attname AS column_name,
        CASE
            WHEN pg_get_expr(index.indexprs, index.indrelid) NOT LIKE 'system_fold(%' THEN 'useless'
            WHEN attribute.attcollation IN (0, '"default"'::regcollation) THEN 'parts'
            WHEN (pg_get_expr(index.indexprs, index.indrelid) LIKE '%COLLATE "default"%') <> rules.collisdeterministic
                THEN 'parts'
            -- Another program has changed the collation since: searches do not use it.
            ELSE 'useless'
        END AS kind,
        (SELECT relname FROM pg_class WHERE oid = index.indexrelid) AS name
    FROM tables
    JOIN pg_index AS index ON index.indrelid = tables.oid
    JOIN pg_depend AS depend
        ON depend.classid = 'pg_class'::regclass
        AND depend.objid = index.indexrelid
        AND depend.refobjid = index.indrelid
    JOIN pg_attribute AS attribute ON attribute.attrelid = tables.oid AND attribute.attnum = depend.refobjsubid
    LEFT JOIN pg_collation AS rules ON rules.oid = attribute.attcollation
    WHERE index.indexprs IS NOT NULL
      AND index.indpred IS NULL
      AND index.indisvalid
      AND (index.indnkeyatts = 1 OR NOT EXISTS (
          SELECT FROM generate_series(1, index.indnkeyatts) AS number
          WHERE pg_get_indexdef(index.indexrelid, number, FALSE) !~ '^regexp_split_to_array\(regexp_replace\(system_fold\('
      ))
      AND pg_get_expr(index.indexprs, index.indrelid) ~ '^(regexp_split_to_array\(regexp_replace\()?system_fold\('
),
nondeterministic_columns AS MATERIALIZED (  -- columns that take different texts for equal ones
    SELECT attribute.table_name, attribute.attname AS column_name
    FROM attributes AS attribute
    JOIN pg_collation AS rules ON rules.oid = attribute.attcollation
    WHERE NOT rules.collisdeterministic
),
checks AS MATERIALIZED (  -- of tables, and of the domains that their columns are of
    SELECT
        tables.name AS table_name,
        con.conname AS name,
        ARRAY(
            SELECT attname
            FROM pg_attribute
            WHERE attrelid = con.conrelid AND attnum = ANY (con.conkey)
            ORDER BY attnum
        ) AS columns,
        pg_get_constraintdef(con.oid) AS rule,
        pg_get_expr(con.conbin, con.conrelid) AS expression
    FROM tables
    JOIN pg_constraint AS con ON con.conrelid = tables.oid
    WHERE con.contype = 'c'
    UNION ALL
    SELECT attribute.table_name, con.conname, ARRAY[attribute.attname], pg_get_constraintdef(con.oid), NULL
    FROM pg_constraint AS con
    JOIN attributes AS attribute ON attribute.atttypid = con.contypid
    WHERE con.contype = 'c'
      AND con.contypid <> 0
),
builds AS MATERIALIZED (  -- what was asked for of columns of large tables, as jobs of the queue
    SELECT
        args #>> '{payload,collection}' AS collection,
        args #>> '{payload,field}' AS field,
        array_agg(DISTINCT args #>> '{payload,kind}' ORDER BY args #>> '{payload,kind}') AS kinds
    FROM procrastinate_jobs
    WHERE queue_name = 'build'
      AND status IN ('todo', 'doing', 'failed')
      AND args #>> '{payload,collection}' IS NOT NULL  -- it was withdrawn
    GROUP BY 1, 2
),
fingerprints AS (  -- a collection has the fingerprint that it had if all rows that it is made of are the same
    -- Hashed once more: the hash of a record is a sum of those of its columns, and a sum of such sums stays the same
    -- where two rows exchange what they have in one column, as their names.
    SELECT name, sum(hashint8extended(hash, 0))::text AS fingerprint
    FROM (
        SELECT name, hash_record_extended(tables, 1) FROM tables
        UNION ALL SELECT table_name, hash_record_extended(columns, 2) FROM columns
        UNION ALL SELECT table_name, hash_record_extended(keys, 3) FROM keys
        UNION ALL SELECT table_name, hash_record_extended(indexes, 4) FROM indexes
        UNION ALL SELECT table_name, hash_record_extended(search_indexes, 5) FROM search_indexes
        UNION ALL SELECT table_name, hash_record_extended(checks, 6) FROM checks
        UNION ALL SELECT table_name, hash_record_extended(nondeterministic_columns, 12) FROM nondeterministic_columns
        -- As text, because no column of type json has a hash.
        UNION ALL SELECT collection, hashtextextended(c::text, 7) FROM system_collections AS c
        UNION ALL SELECT collection, hashtextextended(f::text, 8) FROM system_fields AS f
        UNION ALL SELECT collection, hashtextextended(d::text, 9) FROM system_dropped_collections AS d
        UNION ALL SELECT collection, hash_record_extended(builds, 10) FROM builds
    ) AS parts (name, hash)
    GROUP BY name
),
known AS (
    SELECT key AS name, value AS fingerprint
    FROM json_each_text($1::json)
),
differing AS MATERIALIZED (  -- the fingerprint is NULL for what is gone
    SELECT name, fingerprints.fingerprint
    FROM fingerprints
    FULL JOIN known USING (name)
    WHERE fingerprints.fingerprint IS DISTINCT FROM known.fingerprint
),
changed AS MATERIALIZED (
    SELECT name FROM differing WHERE fingerprint IS NOT NULL
)
SELECT
    version.structure,
    version.access,
    version.flows,
    system_structure_fingerprint() AS fingerprint,
    (
        SELECT json_agg(json_build_object('id', id, 'options', options) ORDER BY date_created, id)
        FROM system_flows
        WHERE status = 'active' AND trigger = 'event'
    )::text AS event_flows,
    coalesce((SELECT json_object_agg(name, fingerprint) FROM differing), '{}')::text AS fingerprints,
    coalesce((SELECT json_agg(tables) FROM tables WHERE name IN (TABLE changed)), '[]')::text AS tables,
    coalesce((
        SELECT json_agg(columns ORDER BY table_name, position)
        FROM columns
        WHERE table_name IN (TABLE changed)
    ), '[]')::text AS columns,
    coalesce((SELECT json_agg(keys ORDER BY name) FROM keys WHERE table_name IN (TABLE changed)), '[]')::text AS keys,
    coalesce((
        SELECT json_agg(parts ORDER BY schema, name, parent_schema, parent_name)
        FROM parts
    ), '[]')::text AS parts,
    coalesce((SELECT json_agg(actions ORDER BY schema, table_name, name) FROM actions), '[]')::text AS actions,
    coalesce((
        SELECT json_agg(indexes ORDER BY name)
        FROM indexes
        WHERE table_name IN (TABLE changed)
    ), '[]')::text AS indexes,
    coalesce((
        SELECT json_agg(search_indexes ORDER BY table_name, column_name, name)
        FROM search_indexes
        WHERE table_name IN (TABLE changed)
    ), '[]')::text AS search_indexes,
    coalesce((
        SELECT json_agg(nondeterministic_columns ORDER BY table_name, column_name)
        FROM nondeterministic_columns
        WHERE table_name IN (TABLE changed)
    ), '[]')::text AS nondeterministic_columns,
    coalesce((
        SELECT json_agg(builds ORDER BY collection, field)
        FROM builds
        WHERE collection IN (TABLE changed)
    ), '[]')::text AS builds,
    coalesce((
        SELECT json_agg(checks ORDER BY name, columns)
        FROM checks
        WHERE table_name IN (TABLE changed)
    ), '[]')::text AS checks,
    coalesce((
        SELECT json_agg(c ORDER BY collection)
        FROM system_collections AS c
        WHERE collection IN (TABLE changed)
    ), '[]')::text AS collections,
    coalesce((
        SELECT json_agg(f ORDER BY sort, id)
        FROM system_fields AS f
        WHERE collection IN (TABLE changed)
    ), '[]')::text AS fields,
    coalesce((SELECT json_agg(r ORDER BY id) FROM system_relations AS r), '[]')::text AS relations,
    coalesce((SELECT json_agg(extname ORDER BY extname) FROM pg_extension), '[]')::text AS extensions,
    coalesce((
        SELECT json_agg(d)
        FROM system_dropped_collections AS d
        WHERE collection IN (TABLE changed)
    ), '[]')::text AS dropped,
    coalesce((SELECT json_agg(name ORDER BY name) FROM tables WHERE name ^@ 'system_'), '[]')::text AS service_tables
FROM system_version AS version;

-- name: find_version
-- The counters of freshness, for answers whose statement does not select them.
SELECT structure, access, flows
FROM system_version;

-- name: find_event_flows
-- The active flows that wait for events, with the options that say for which.
SELECT json_agg(json_build_object('id', id, 'options', options) ORDER BY date_created, id)::text
FROM system_flows
WHERE status = 'active'
  AND trigger = 'event';

-- name: find_missing_rights
-- What this account may not do with the tables, views and sequences of the service's schema.
WITH relations AS (
    SELECT
        oid,
        relname,
        relkind,
        (  -- what INSTEAD OF triggers of a view do, as bits of tgtype
            SELECT bit_or(tgtype) FROM pg_trigger WHERE tgrelid = pg_class.oid AND tgtype & 64 <> 0
        ) AS triggered
    FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace
      AND NOT relispartition
),
missing AS (
    SELECT relname, privilege
    FROM relations
    CROSS JOIN (  -- a foreign key needs REFERENCES on the table that it points to
        VALUES ('SELECT', 0), ('INSERT', 4), ('UPDATE', 16), ('DELETE', 8), ('REFERENCES', 0)
    ) AS privileges (privilege, bit)
    WHERE (relkind IN ('r', 'p') OR relkind IN ('v', 'm', 'f') AND privilege = 'SELECT' OR triggered & bit <> 0)
      AND NOT has_table_privilege(oid, privilege)
    UNION ALL
    SELECT relname, 'USAGE'
    FROM relations
    WHERE CASE WHEN relkind = 'S' THEN NOT has_sequence_privilege(oid, 'USAGE') END
)
SELECT relname::text, string_agg(privilege, ', ')
FROM missing
GROUP BY relname
ORDER BY relname;

-- name: find_fingerprint
-- The counter of structure, and the fingerprint of the structure at this moment.
SELECT structure, system_structure_fingerprint() AS fingerprint
FROM system_version;

-- name: wait_for_others
-- Writes that are repeated after a deadlock take turns, so that they do not block each other again.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' system_deadlocks', 0));

-- name: share_version
-- The counters, which nobody can move until the transaction ends; other transactions may share the lock.
SELECT structure, access, flows
FROM system_version
FOR SHARE;

-- name: lock_version
-- The counters, locked by a transaction that will move them: others that want to share or lock them wait.
SELECT structure, access, flows
FROM system_version
FOR NO KEY UPDATE;

-- name: find_statistics
-- PostgreSQL's statistics of tables: rows and size, and whether the table needs a new ANALYZE.
SELECT
    n.nspname::text,
    c.relname::text,
    c.reltuples,
    pg_relation_size(c.oid),
    -- An ANALYZE of no rows leaves no statistics of columns behind: they are missing when rows have come since.
    (c.reltuples <> 0 OR pg_relation_size(c.oid) > c.relpages * current_setting('block_size')::bigint)
        AND NOT EXISTS (SELECT FROM pg_stats AS s WHERE s.schemaname = n.nspname AND s.tablename = c.relname)
        OR pg_stat_get_mod_since_analyze(c.oid) > 50 + 0.1 * greatest(c.reltuples, 0)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relnamespace = current_schema()::regnamespace
    AND c.relname = ANY ($1::text[])
    AND c.relkind = 'r'
    AND pg_relation_size(c.oid) > 0;
