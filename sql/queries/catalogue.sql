-- name: load_catalogue
-- All rows of which the model of collections, fields and relations is made, at one moment and in one round trip.
WITH RECURSIVE tables AS (
    SELECT
        class.oid,
        class.relname AS name,
        class.relkind IN ('v', 'm') AS is_view,
        (  -- whether a write may change more than its own row: triggers, ON UPDATE, partitions and inheritance
            EXISTS (SELECT FROM pg_trigger WHERE tgrelid = class.oid AND NOT tgisinternal)
            OR EXISTS (
                SELECT FROM pg_constraint AS foreign_key
                WHERE foreign_key.confrelid = class.oid
                  AND foreign_key.confupdtype IN ('c', 'n', 'd')
                  AND NOT EXISTS (  -- the service never changes a primary key
                      SELECT FROM pg_constraint AS key
                      WHERE key.conrelid = class.oid AND key.contype = 'p' AND foreign_key.confkey <@ key.conkey
                  )
            )
            OR class.relkind <> 'p' AND EXISTS (SELECT FROM pg_inherits WHERE class.oid IN (inhrelid, inhparent))
        ) AS does_more,
        obj_description(class.oid, 'pg_class') AS comment
    FROM pg_class AS class
    WHERE class.relnamespace = current_schema()::regnamespace
      AND class.relkind IN ('r', 'p', 'f', 'v', 'm')
      AND NOT class.relispartition
      AND NOT EXISTS (  -- tables of extensions hold no content of the project
          SELECT FROM pg_depend
          WHERE pg_depend.classid = 'pg_class'::regclass
            AND pg_depend.objid = class.oid
            AND pg_depend.deptype = 'e'
      )
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
types AS (  -- the type behind all domains over it, and the element type of arrays of simple types
    SELECT
        whole.oid,
        type.oid AS base,
        type.typname AS name,
        domains.modifier,
        coalesce(domains.not_null, FALSE) AS not_null,
        domains.default_value,
        type.typtype = 'e' AS is_enum,
        simple.typname AS element
    FROM pg_type AS whole
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
columns AS (
    SELECT
        tables.name AS table_name,
        attribute.attname AS name,
        format_type(attribute.atttypid, attribute.atttypmod) AS data_type,
        format_type(types.base, -1) AS cast,
        types.name AS base_type,
        types.base <> types.oid AS is_domain,
        coalesce(pg_get_expr(definition.adbin, definition.adrelid), types.default_value) AS default_value,
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
            OR coalesce(
                pg_get_expr(definition.adbin, definition.adrelid) ~ '^nextval\(''([^'']|'''')+''::regclass\)$', FALSE
            )
            AS auto_increment,
        CASE WHEN types.is_enum
            THEN ARRAY(SELECT enumlabel FROM pg_enum WHERE enumtypid = types.base ORDER BY enumsortorder)
        END AS choices,
        types.element,
        col_description(tables.oid, attribute.attnum) AS comment,
        attribute.attnum AS position
    FROM tables
    JOIN pg_attribute AS attribute ON attribute.attrelid = tables.oid
    JOIN types ON types.oid = attribute.atttypid
    CROSS JOIN LATERAL (SELECT coalesce(types.modifier, attribute.atttypmod)) AS size (modifier)
    LEFT JOIN pg_attrdef AS definition
        ON definition.adrelid = attribute.attrelid AND definition.adnum = attribute.attnum
    WHERE attribute.attnum > 0
      AND NOT attribute.attisdropped
),
keys AS (
    SELECT
        tables.name AS table_name,
        con.conname AS name,
        con.contype AS kind,
        ARRAY(
            SELECT attname
            FROM unnest(con.conkey) WITH ORDINALITY AS key (number, position)
            JOIN pg_attribute ON attrelid = con.conrelid AND attnum = key.number
            ORDER BY key.position
        ) AS columns,
        target.relname AS foreign_table,
        ARRAY(
            SELECT attname
            FROM unnest(con.confkey) WITH ORDINALITY AS key (number, position)
            JOIN pg_attribute ON attrelid = con.confrelid AND attnum = key.number
            ORDER BY key.position
        ) AS foreign_columns,
        con.confupdtype AS on_update,
        con.confdeltype AS on_delete
    FROM tables
    JOIN pg_constraint AS con ON con.conrelid = tables.oid
    LEFT JOIN pg_class AS target ON target.oid = con.confrelid
    WHERE con.contype IN ('p', 'u', 'f')
      AND con.conparentid = 0
      -- tables of other schemas are no collections
      AND (con.confrelid = 0 OR target.relnamespace = current_schema()::regnamespace)
),
reached AS MATERIALIZED (  -- those of other schemas that deletions cannot reach are those of other installations
    SELECT oid
    FROM system_reached_tables() AS oid
),
bodies AS (  -- all reached tables that store rows; the schema is NULL for the service's own
    SELECT
        oid,
        relname AS name,
        CASE WHEN relnamespace <> current_schema()::regnamespace THEN relnamespace::regnamespace::name END AS schema,
        relispartition AS is_partition,
        has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT') AS is_readable
    FROM pg_class
    WHERE relkind IN ('r', 'p')
      AND relpersistence <> 't'
      AND oid IN (SELECT oid FROM reached)
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
actions AS (  -- ON DELETE of foreign keys, for the history; left out where the service may not read or change the rows
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
    -- Through JSON, because PostgreSQL 14 has no such column: it always changes the whole key.
    CROSS JOIN LATERAL (SELECT coalesce(to_jsonb(con) -> 'confdelsetcols', 'null') OFFSET 0) AS listed (numbers)
    CROSS JOIN LATERAL (
        SELECT
            array_agg(near.attname ORDER BY key.position) AS columns,
            array_agg(far.attname ORDER BY key.position) AS foreign_columns,
            array_agg(near.attname ORDER BY key.position) FILTER (
                WHERE listed.numbers IN ('null', '[]') OR listed.numbers @> to_jsonb(key.number)
            ) AS changed
        FROM unnest(con.conkey, con.confkey) WITH ORDINALITY AS key (number, foreign_number, position)
        JOIN pg_attribute AS near ON near.attrelid = con.conrelid AND near.attnum = key.number
        JOIN pg_attribute AS far ON far.attrelid = con.confrelid AND far.attnum = key.foreign_number
    ) AS own
    WHERE con.contype = 'f'
      AND con.confdeltype IN ('c', 'n', 'd')
      AND con.conparentid = 0
      AND source.is_readable
      AND target.is_readable
      AND has_any_column_privilege(source.oid, 'UPDATE')
),
indexes AS (
    SELECT
        tables.name AS table_name,
        class.relname AS name,
        attribute.attname AS column_name,
        index.indisunique AS is_unique
    FROM tables
    JOIN pg_index AS index ON index.indrelid = tables.oid
    JOIN pg_class AS class ON class.oid = index.indexrelid
    JOIN pg_attribute AS attribute ON attribute.attrelid = tables.oid AND attribute.attnum = index.indkey[0]
    WHERE index.indnkeyatts = 1
      AND index.indpred IS NULL
      AND index.indisvalid
),
search_indexes AS (  -- for texts that contain a word: expressions over one column
    SELECT
        tables.name AS table_name,
        attribute.attname AS column_name
    FROM tables
    JOIN pg_index AS index ON index.indrelid = tables.oid
    JOIN pg_depend AS depend
        ON depend.classid = 'pg_class'::regclass
        AND depend.objid = index.indexrelid
        AND depend.refobjid = index.indrelid
    JOIN pg_attribute AS attribute ON attribute.attrelid = tables.oid AND attribute.attnum = depend.refobjsubid
    WHERE index.indexprs IS NOT NULL
      AND index.indpred IS NULL
      AND index.indnkeyatts = 1
      AND index.indisvalid
      AND pg_get_expr(index.indexprs, index.indrelid) LIKE 'system_fold(%'
),
checks AS (  -- of tables, and of the domains that their columns are of
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
    SELECT tables.name, con.conname, ARRAY[attribute.attname], pg_get_constraintdef(con.oid), NULL
    FROM tables
    JOIN pg_attribute AS attribute ON attribute.attrelid = tables.oid
    JOIN pg_constraint AS con ON con.contypid = attribute.atttypid
    WHERE con.contype = 'c'
      AND attribute.attnum > 0
      AND NOT attribute.attisdropped
)
SELECT
    version.structure,
    version.access,
    version.flows,
    system_mark() AS fingerprint,
    (
        SELECT json_agg(json_build_object('id', id, 'options', options) ORDER BY date_created, id)
        FROM system_flows
        WHERE status = 'active' AND trigger = 'event'
    )::text AS event_flows,
    coalesce((SELECT json_agg(tables) FROM tables), '[]')::text AS tables,
    coalesce((SELECT json_agg(columns ORDER BY table_name, position) FROM columns), '[]')::text AS columns,
    coalesce((SELECT json_agg(keys ORDER BY name) FROM keys), '[]')::text AS keys,
    coalesce((SELECT json_agg(parts ORDER BY schema, name, parent_schema, parent_name) FROM parts), '[]')::text AS parts,
    coalesce((SELECT json_agg(actions ORDER BY schema, table_name, name) FROM actions), '[]')::text AS actions,
    coalesce((SELECT json_agg(indexes ORDER BY name) FROM indexes), '[]')::text AS indexes,
    coalesce((SELECT json_agg(search_indexes ORDER BY table_name, column_name) FROM search_indexes), '[]')::text
        AS search_indexes,
    coalesce((SELECT json_agg(checks ORDER BY name, columns) FROM checks), '[]')::text AS checks,
    coalesce((SELECT json_agg(c ORDER BY collection) FROM system_collections AS c), '[]')::text AS collections,
    coalesce((SELECT json_agg(f ORDER BY sort, id) FROM system_fields AS f), '[]')::text AS fields,
    coalesce((SELECT json_agg(r ORDER BY id) FROM system_relations AS r), '[]')::text AS relations,
    coalesce((SELECT json_agg(extname ORDER BY extname) FROM pg_extension), '[]')::text AS extensions,
    coalesce((SELECT json_agg(d) FROM system_dropped_collections AS d), '[]')::text AS dropped
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

-- name: find_fingerprint
-- The counter of structure, and the fingerprint of the structure at this moment.
SELECT structure, system_mark() AS fingerprint
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
    NOT EXISTS (SELECT FROM pg_stats AS s WHERE s.schemaname = n.nspname AND s.tablename = c.relname)
        OR pg_stat_get_mod_since_analyze(c.oid) > 50 + 0.1 * greatest(c.reltuples, 0)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relnamespace = current_schema()::regnamespace
    AND c.relname = ANY ($1::text[])
    AND c.relkind = 'r'
    AND pg_relation_size(c.oid) > 0;

-- name: find_longest_lists
-- How many rows hold the commonest value of each column, as far as PostgreSQL knows; columns without statistics are
-- left out.
SELECT
    wanted.collection,
    wanted.field,
    greatest(c.reltuples, 1) * coalesce(
        (s.most_common_freqs)[1],
        CASE WHEN s.n_distinct > 0 THEN 1 / s.n_distinct ELSE 1 / greatest(-s.n_distinct * c.reltuples, 1) END
    ) AS length
FROM unnest($1::text[], $2::text[]) AS wanted (collection, field)
JOIN pg_class AS c ON c.relname = wanted.collection AND c.relnamespace = current_schema()::regnamespace
JOIN pg_stats AS s
    ON s.schemaname = current_schema()
   AND s.tablename = wanted.collection
   AND s.attname = wanted.field
   AND s.inherited = (c.relkind = 'p');
