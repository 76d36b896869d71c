-- name: find_lists
-- The to-many fields that list the rows of a collection, by one of its fields or by any.
SELECT one_collection, one_field
FROM system_relations
WHERE many_collection = $1::text
  AND many_field = coalesce($2::text, many_field)
  AND one_collection IS NOT NULL
  AND one_field IS NOT NULL;

-- name: delete_collection_relations
-- Deletes the relations on either side; a many-to-any relation only loses the collection from its list.
WITH shortened AS (
    UPDATE system_relations
    SET one_allowed_collections = array_remove(one_allowed_collections, $1::text)
    WHERE $1::text = ANY (one_allowed_collections)
      AND many_collection <> $1::text
)
DELETE FROM system_relations
WHERE many_collection = $1::text
   OR one_collection = $1::text;

-- name: remove_collection_from_junctions
-- Removes the junction field of many-to-many relations that led to the collection. It runs before these relations are
-- deleted, because it finds them by the other side.
UPDATE system_relations AS near
SET junction_field = NULL
FROM system_relations AS far
WHERE far.one_collection = $1::text
  AND near.many_collection = far.many_collection
  AND near.junction_field = far.many_field;

-- name: delete_collection_fields
-- Deletes the records of the collection's fields.
DELETE FROM system_fields
WHERE collection = $1::text;

-- name: delete_collection_permissions
-- Deletes the permissions on a collection: a later collection of the same name must not have them.
DELETE FROM system_permissions
WHERE collection = $1::text;

-- name: delete_collection_presets
-- Deletes the saved views of the collection.
DELETE FROM system_presets
WHERE collection = $1::text;

-- name: delete_collection_shares
-- Deletes the links to the collection's items.
DELETE FROM system_shares
WHERE collection = $1::text;

-- name: close_collection_history
-- Records where the history of a collection ends, so that it is not shown as that of a later one of the same name.
INSERT INTO system_dropped_collections (collection, last_activity, last_revision)
SELECT
    $1::text,
    coalesce(pg_sequence_last_value('system_activity_id_seq'), 0),
    coalesce(pg_sequence_last_value('system_revisions_id_seq'), 0)
WHERE EXISTS (SELECT FROM system_activity WHERE collection = $1::text)
ON CONFLICT (collection) DO UPDATE
SET
    last_activity = excluded.last_activity,
    last_revision = excluded.last_revision;

-- name: delete_collection_record
-- Deletes the record of the collection itself.
DELETE FROM system_collections
WHERE collection = $1::text;

-- name: delete_field_relations
-- Deletes the relations whose column is the field.
DELETE FROM system_relations
WHERE many_collection = $1::text
  AND $2::text IN (many_field, one_collection_field);

-- name: remove_field_from_lists
-- Removes the name of the field, which listed rows of another collection, from the relation of that collection.
UPDATE system_relations
SET one_field = NULL
WHERE one_collection = $1::text
  AND one_field = $2::text;

-- name: remove_field_from_relations
-- Removes the name of the field from relations of the collection's other fields.
UPDATE system_relations
SET
    sort_field = nullif(sort_field, $2::text),
    junction_field = nullif(junction_field, $2::text)
WHERE many_collection = $1::text
  AND $2::text IN (sort_field, junction_field);

-- name: delete_field_record
-- Deletes the record of the field.
DELETE FROM system_fields
WHERE collection = $1::text
  AND field = $2::text;

-- name: remove_field_from_collection
-- Ends manual sorting and archiving by the field.
UPDATE system_collections
SET
    sort_field = nullif(sort_field, $2::text),
    archive_field = nullif(archive_field, $2::text)
WHERE collection = $1::text
  AND $2::text IN (sort_field, archive_field);

-- name: save_duplication_fields
-- Sets the fields that clients copy with an item.
UPDATE system_collections
SET item_duplication_fields = $2::json
WHERE collection = $1::text;

-- name: remove_field_from_groups
-- Takes fields out of the group that the field was.
UPDATE system_fields
SET "group" = NULL
WHERE collection = $1::text
  AND "group" = $2::text;

-- name: remove_field_from_permissions
-- Removes the name from all lists of allowed fields, so that a later field of the name is not allowed by accident.
UPDATE system_permissions
SET fields = (
    SELECT coalesce(json_agg(allowed), '[]')
    FROM json_array_elements_text(fields) AS allowed
    WHERE allowed <> $2::text
)
WHERE collection = $1::text
  AND json_typeof(fields) = 'array'
  AND fields::jsonb ? $2::text;

-- name: change_field_in_revisions
-- Renames a field in what revisions hold ($3 is its new name), or removes it ($3 is NULL). The JSON of all other values
-- stays as it is, to the last digit.
WITH kept AS (
    SELECT
        revision.id,
        revision.created,
        json_object_agg(side.name, (
            -- From the text of each value: jsonb would change numbers, and the order of keys.
            SELECT ('{' || coalesce(string_agg(to_json(named.key)::text || ':' || e.value::text, ','), '') || '}')::json
            FROM json_each(side.content) AS e
            CROSS JOIN LATERAL (SELECT CASE WHEN e.key = $2::text THEN $3::text ELSE e.key END AS key) AS named
            WHERE named.key IS NOT NULL
        )) AS sides
    FROM system_revisions AS revision
    -- Only the sides that name the field are rewritten.
    CROSS JOIN LATERAL (VALUES ('data', revision.data), ('delta', revision.delta)) AS side (name, content)
    WHERE revision.collection = $1::text
      AND revision.id > coalesce(
          (SELECT last_revision FROM system_dropped_collections WHERE collection = $1::text), 0
      )
      AND json_typeof(side.content) = 'object'
      AND side.content::jsonb ? $2::text
    GROUP BY revision.id, revision.created
)
UPDATE system_revisions AS revision
SET
    data = coalesce(kept.sides -> 'data', revision.data),
    delta = coalesce(kept.sides -> 'delta', revision.delta)
FROM kept
WHERE revision.id = kept.id
  AND revision.created = kept.created;

-- name: rename_field_record
-- Renames the record of a field.
UPDATE system_fields
SET field = $3::text
WHERE collection = $1::text
  AND field = $2::text;

-- name: rename_field_in_group
-- Renames the group of fields that are shown under the field.
UPDATE system_fields
SET "group" = $3::text
WHERE collection = $1::text
  AND "group" = $2::text;

-- name: rename_field_in_relations
-- Renames a field in relations, which name fields on both sides.
UPDATE system_relations
SET
    many_field = CASE WHEN many_collection = $1::text AND many_field = $2::text THEN $3::text ELSE many_field END,
    one_collection_field = CASE
        WHEN many_collection = $1::text AND one_collection_field = $2::text THEN $3::text
        ELSE one_collection_field
    END,
    junction_field = CASE
        WHEN many_collection = $1::text AND junction_field = $2::text THEN $3::text
        ELSE junction_field
    END,
    sort_field = CASE WHEN many_collection = $1::text AND sort_field = $2::text THEN $3::text ELSE sort_field END,
    one_field = CASE WHEN one_collection = $1::text AND one_field = $2::text THEN $3::text ELSE one_field END
WHERE $1::text IN (many_collection, one_collection);

-- name: rename_field_in_collection
-- Renames the field of manual sorting or archiving.
UPDATE system_collections
SET
    sort_field = CASE WHEN sort_field = $2::text THEN $3::text ELSE sort_field END,
    archive_field = CASE WHEN archive_field = $2::text THEN $3::text ELSE archive_field END
WHERE collection = $1::text
  AND $2::text IN (sort_field, archive_field);

-- name: rename_field_in_permissions
-- Renames a field in lists of allowed fields.
UPDATE system_permissions
SET fields = (
    SELECT json_agg(CASE WHEN allowed = $2::text THEN $3::text ELSE allowed END)
    FROM json_array_elements_text(fields) AS allowed
)
WHERE collection = $1::text
  AND json_typeof(fields) = 'array'
  AND fields::jsonb ? $2::text;

-- name: unique_constraints
-- The constraints that make one column unique, without the primary key.
SELECT con.conname
FROM pg_constraint AS con
JOIN pg_attribute AS attribute ON attribute.attrelid = con.conrelid AND attribute.attnum = con.conkey[1]
WHERE con.conrelid = to_regclass(quote_ident($1::text))
  AND con.contype = 'u'
  AND cardinality(con.conkey) = 1
  AND attribute.attname = $2::text;

-- name: has_unique_constraint
-- Whether a constraint, or the primary key, makes one column unique.
SELECT EXISTS (
    SELECT
    FROM pg_constraint AS con
    JOIN pg_attribute AS attribute ON attribute.attrelid = con.conrelid AND attribute.attnum = con.conkey[1]
    WHERE con.conrelid = to_regclass(quote_ident($1::text))
      AND con.contype IN ('p', 'u')
      AND cardinality(con.conkey) = 1
      AND attribute.attname = $2::text
);

-- name: column_indexes
-- The indexes of one column that belong to no constraint: those that make it unique ($3), or the others.
SELECT class.relname
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = index.indkey[0]
WHERE index.indrelid = to_regclass(quote_ident($1::text))
  AND index.indisunique = $3::text::boolean
  AND index.indnkeyatts = 1
  AND index.indpred IS NULL
  AND attribute.attname = $2::text
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = index.indexrelid);

-- name: find_search_indexes
-- The indexes for searches in one column, as they are now: the transaction may have created them. `load_catalogue` has
-- those of all columns.
SELECT class.relname
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
JOIN pg_depend AS depend
    ON depend.classid = 'pg_class'::regclass
    AND depend.objid = index.indexrelid
    AND depend.refobjid = index.indrelid
JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = depend.refobjsubid
WHERE index.indrelid = to_regclass(quote_ident($1::text))
  AND attribute.attname = $2::text
  AND index.indisvalid
  AND index.indpred IS NULL
  AND (index.indnkeyatts = 1 OR NOT EXISTS (  -- all of its columns are words
    SELECT FROM generate_series(1, index.indnkeyatts) AS number
    WHERE pg_get_indexdef(index.indexrelid, number, FALSE) !~ '^regexp_split_to_array\(regexp_replace\(system_fold\('
  ))
  AND pg_get_expr(index.indexprs, index.indrelid) ~ '^(regexp_split_to_array\(regexp_replace\()?system_fold\(';

-- name: find_collation
-- The collation that another program has given a column, if a type ($3) can have one.
SELECT namespace.nspname, rules.collname
FROM pg_attribute AS attribute
JOIN pg_collation AS rules ON rules.oid = attribute.attcollation
JOIN pg_namespace AS namespace ON namespace.oid = rules.collnamespace
WHERE attribute.attrelid = to_regclass(quote_ident($1::text))
  AND attribute.attname = $2::text
  AND attribute.attcollation <> '"default"'::regcollation
  AND EXISTS (SELECT FROM pg_type WHERE oid = $3::text::regtype AND typcollation <> 0);

-- name: lock_index_build
-- Whether the transaction may now build an index of the table. It does not wait: see `index_build_lock`.
SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' ' || $1::text, 2));

-- name: invalid_indexes
-- The indexes of one column whose build has failed; with $3 the one of that name, whatever its column is called by now.
SELECT class.relname
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
JOIN pg_depend AS depend  -- an index over an expression names its columns only here
    ON depend.classid = 'pg_class'::regclass
    AND depend.objid = index.indexrelid
    AND depend.refclassid = 'pg_class'::regclass
    AND depend.refobjid = index.indrelid
JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = depend.refobjsubid
WHERE index.indrelid = to_regclass(quote_ident($1::text))
  AND CASE WHEN $3::text IS NULL THEN attribute.attname = $2::text ELSE class.relname = $3::text END
  AND class.relkind = 'i' -- that of a partitioned table becomes valid with those of its partitions
  AND index.indnkeyatts = 1
  AND index.indpred IS NULL
  AND NOT index.indisvalid
  -- an index that is being built is not valid either
  AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE index_relid = index.indexrelid);

-- name: look_anew_at_progress
-- Has the rest of the transaction see how far builds are by now: it keeps what it has seen otherwise.
SELECT pg_stat_clear_snapshot()::text;

-- name: find_invalid_indexes
-- The indexes of collections whose build was broken off: table, name, and whether they refuse values. Those of
-- partitioned tables are left out, as they become valid with those of their partitions.
SELECT relation.relname, class.relname, index.indisunique
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
JOIN pg_class AS relation ON relation.oid = index.indrelid
WHERE relation.relnamespace = current_schema()::regnamespace
  AND class.relkind = 'i'
  AND NOT index.indisvalid
  AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE index_relid = index.indexrelid)
ORDER BY 1, 2;

-- name: value_indexes
-- The indexes over one field, or over a path of one ($1: of one table, or of all), for `cms index`. Indexes of
-- constraints are no such indexes, nor are those over a part of the rows.
SELECT
    relation.relname,
    attribute.attname,
    CASE WHEN path.quoted IS NOT NULL THEN replace(path.quoted, '''''', '''')::text[] END AS steps,
    class.relname,
    index.indisvalid,
    pg_relation_size(class.oid),
    coalesce(pg_stat_get_numscans(class.oid), 0)
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
JOIN pg_class AS relation ON relation.oid = index.indrelid
JOIN pg_depend AS depend
    ON depend.classid = 'pg_class'::regclass
    AND depend.objid = index.indexrelid
    AND depend.refclassid = 'pg_class'::regclass
    AND depend.refobjid = index.indrelid
    AND depend.refobjsubid > 0
JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = depend.refobjsubid
CROSS JOIN LATERAL (
    SELECT substring(
        pg_get_expr(index.indexprs, index.indrelid)
        FROM '^system_json_key\(system_json_at\(.*, ''(.*)''::text\[\]\)\)$'
    ) AS quoted
) AS path
WHERE relation.relnamespace = current_schema()::regnamespace
  AND ($1::text IS NULL OR relation.relname = $1::text)
  AND relation.relname NOT LIKE 'system\_%'
  AND relation.relname NOT LIKE 'procrastinate\_%'
  AND index.indnatts = 1
  AND index.indpred IS NULL
  AND NOT index.indisunique
  AND NOT index.indisexclusion
  AND (index.indexprs IS NULL OR path.quoted IS NOT NULL)
ORDER BY 1, 2, 3 NULLS FIRST, 4;

-- name: find_large_tables
-- Which tables of $1 have more than $2 bytes. Measured and not estimated, because a table that was just filled has no
-- statistics yet. Partitioned tables never count as large: they take no concurrent build.
SELECT name
FROM unnest($1::text[]) AS name
JOIN pg_class AS class ON class.oid = to_regclass(quote_ident(name))
WHERE class.relkind = 'r'
  AND pg_table_size(class.oid) > $2::bigint
ORDER BY name;

-- name: is_partitioned
-- Whether a table is partitioned.
SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(quote_ident($1::text)) AND relkind = 'p');

-- name: owns_table
-- Whether this account owns a table, as only an owner makes indexes of it.
SELECT pg_has_role(relowner, 'USAGE')
FROM pg_class
WHERE oid = to_regclass(quote_ident($1::text));

-- name: take_former_requests
-- What the version before has noted that a table was asked for; it is noted no more.
WITH indexes AS (
    DELETE FROM system_index_requests
    WHERE collection = $1::text
    RETURNING field, 'index' AS kind
),
constraints AS (
    DELETE FROM system_constraint_requests
    WHERE collection = $1::text
    RETURNING field, kind
)
SELECT field, kind FROM indexes
UNION ALL
SELECT field, kind FROM constraints;

-- name: unattached_unique_index
-- A valid index that makes one column unique and belongs to no constraint.
SELECT class.relname
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
JOIN pg_opclass AS operators ON operators.oid = index.indclass[0]
JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = index.indkey[0]
WHERE index.indrelid = to_regclass(quote_ident($1::text))
  AND attribute.attname = $2::text
  AND index.indisunique
  AND index.indisvalid
  AND index.indnatts = 1
  AND index.indpred IS NULL
  AND index.indexprs IS NULL
  AND index.indoption[0] = 0  -- a constraint takes no index of another order, or of other rules
  AND operators.opcdefault
  AND index.indcollation[0] = attribute.attcollation
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = index.indexrelid AND contype IN ('p', 'u', 'x'))
ORDER BY index.indexrelid
LIMIT 1;

-- name: name_for_constraint
-- The name for the constraint of index $2 of table $1: that of the index, unless another constraint has it, such as a
-- CHECK of somebody else.
SELECT
    CASE
        WHEN EXISTS (SELECT FROM pg_constraint WHERE conrelid = index.indrelid AND conname = class.relname)
            THEN left(class.relname, 12) || '_' || class.oid
        ELSE class.relname
    END AS name
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
WHERE index.indrelid = to_regclass(quote_ident($1::text))
  AND class.relname = $2::text;

-- name: limit_lock_time
-- Ends a statement of this transaction that waits for a lock longer than $1.
SELECT set_config('lock_timeout', $1::text, TRUE);

-- name: limit_lock_wait
-- Ends statements of this transaction that wait for a lock longer than $1 seconds; with $2 they wait until PostgreSQL has
-- ended an autovacuum for them. Returns the process of the session, too.
SELECT
  set_config(
    'lock_timeout',
    ceil(1000 * (
      $1::numeric
      + CASE WHEN $2::boolean THEN extract(EPOCH FROM current_setting('deadlock_timeout')::interval) ELSE 0 END
    ))::text,
    TRUE
  ),
  pg_backend_pid();

-- name: find_awaited_table
-- Returns the table that the process $1 waits for, the processes before it, and whether one of these is an autovacuum:
-- of a user's process everybody sees the user.
SELECT
  class.relname,
  blocking.pids,
  EXISTS (SELECT FROM pg_stat_activity AS activity WHERE activity.pid = ANY (blocking.pids) AND activity.usesysid IS NULL)
FROM pg_locks AS lock
JOIN pg_class AS class ON class.oid = lock.relation
CROSS JOIN LATERAL (SELECT pg_blocking_pids(lock.pid)) AS blocking (pids)
WHERE lock.pid = $1::integer
  AND lock.locktype = 'relation'
  AND NOT lock.granted;

-- name: is_table_used
-- Tells whether one of the processes $2 has a lock on the table $1.
SELECT EXISTS (
  SELECT
  FROM pg_locks AS lock
  JOIN pg_database AS database ON database.oid = lock.database
  WHERE database.datname = current_database()
    AND lock.relation = to_regclass(quote_ident($1::text))
    AND lock.pid = ANY ($2::integer[])
    AND lock.granted
);

-- name: cancel_index_builds
-- Ends the builds of indexes of a table by the service; not those of roles that this one may not act for. Other
-- programs name their indexes otherwise, or do not quote the table: nobody would begin their builds anew.
SELECT pg_cancel_backend(progress.pid)
FROM pg_stat_progress_create_index AS progress
JOIN pg_stat_activity AS activity ON activity.pid = progress.pid
WHERE progress.relid = to_regclass(quote_ident($1::text))
  AND progress.datname = current_database()
  AND pg_has_role(activity.usesysid, 'USAGE')
  AND (current_setting('is_superuser')::boolean OR NOT (SELECT rolsuper FROM pg_roles WHERE oid = activity.usesysid))
  -- the version before gives indexes no name
  AND activity.query ~ '^CREATE (UNIQUE )?INDEX CONCURRENTLY (".*_[0-9a-f]{8}" )?ON "';

-- name: cancel_validations
-- Ends the checks of foreign keys by the service that use the table, as that of the key or as the one that it points to.
-- Other programs do not write ONLY, as `ddl.validate_constraint` does: nobody would begin their checks anew.
SELECT pg_cancel_backend(activity.pid)
FROM pg_stat_activity AS activity
JOIN pg_locks AS lock ON lock.pid = activity.pid
WHERE activity.datname = current_database()
  AND pg_has_role(activity.usesysid, 'USAGE')
  AND (current_setting('is_superuser')::boolean OR NOT (SELECT rolsuper FROM pg_roles WHERE oid = activity.usesysid))
  AND activity.query LIKE 'ALTER TABLE ONLY "%" VALIDATE CONSTRAINT "%'
  AND activity.state = 'active'
  AND lock.locktype = 'relation'
  AND lock.relation = to_regclass(quote_ident($1::text));

-- name: unchecked_foreign_keys
-- The foreign keys of one column that hold for rows that are written, and are not checked for stored ones. One to a
-- partitioned table has a part for each partition: PostgreSQL before 18 leaves the parts unchecked when it has checked the
-- key, and most rows violate each of them.
SELECT con.conname
FROM pg_constraint AS con
JOIN pg_attribute AS attribute ON attribute.attrelid = con.conrelid AND attribute.attnum = con.conkey[1]
WHERE con.conrelid = to_regclass(quote_ident($1::text))
  AND con.contype = 'f'
  AND NOT con.convalidated
  AND con.conparentid = 0
  AND cardinality(con.conkey) = 1
  AND attribute.attname = $2::text
ORDER BY con.conname;

-- name: await_structure
-- Waits until no change of structure is under way.
SELECT id
FROM system_version
FOR SHARE;

-- name: drop_relation
-- Marks a relation as deleted. The record stays, because the foreign key that stays would make a relation otherwise.
INSERT INTO system_relations (many_collection, many_field, dropped)
VALUES ($1::text, $2::text, TRUE)
ON CONFLICT (many_collection, many_field) DO UPDATE
SET dropped = TRUE, one_collection = NULL, one_field = NULL;

-- name: foreign_keys_to
-- The foreign keys of other collections that point to a table, whether they are relations or not.
SELECT source.relname, con.conname
FROM pg_constraint AS con
JOIN pg_class AS source ON source.oid = con.conrelid
WHERE con.confrelid = to_regclass(quote_ident($1::text))
  AND con.conrelid <> con.confrelid
  AND source.relnamespace = current_schema()::regnamespace
  AND con.contype = 'f'
  AND con.conparentid = 0;

-- name: record_structure_changes
-- Records changes of the structure by one author ($1 to $4), in this order, and returns their revisions. A change without
-- data has no revision.
WITH rows AS (
    -- The ids are drawn here, in the order of the changes: both tables below need them.
    SELECT
        change.*,
        nextval('system_activity_id_seq') AS activity,
        nextval('system_revisions_id_seq') AS revision
    FROM unnest($5::text[], $6::text[], $7::text[], $8::json[], $9::json[], $10::bigint[])
        WITH ORDINALITY AS change (action, collection, item, data, delta, parent, number)
    ORDER BY change.number
),
activities AS (
    INSERT INTO system_activity (id, action, "user", ip, user_agent, origin, collection, item)
    SELECT activity, action, $1::uuid, $2::text, $3::text, $4::text, collection, item
    FROM rows
),
revisions AS (
    INSERT INTO system_revisions (id, activity, collection, item, data, delta, parent)
    SELECT revision, activity, collection, item, data, delta, parent
    FROM rows
    WHERE data IS NOT NULL
)
SELECT CASE WHEN data IS NOT NULL THEN revision END
FROM rows
ORDER BY number;

-- name: rename_in_history
-- Renames a field ($1 to $2) in its history and in that of its relation.
WITH acts AS (
    UPDATE system_activity
    SET item = $2::text
    WHERE collection IN ('system_fields', 'system_relations')
      AND item = $1::text
)
UPDATE system_revisions
SET item = $2::text
WHERE collection IN ('system_fields', 'system_relations')
  AND item = $1::text;

-- name: mask_default_in_history
-- Masks the default of a field that has become a secret in the revisions of its record.
UPDATE system_revisions
SET
    data = CASE WHEN data #>> '{schema,default_value}' IS NULL THEN data
        ELSE jsonb_set(data::jsonb, '{schema,default_value}', to_jsonb($2::text))::json
    END,
    delta = CASE WHEN delta #>> '{schema,default_value}' IS NULL THEN delta
        ELSE jsonb_set(delta::jsonb, '{schema,default_value}', to_jsonb($2::text))::json
    END
WHERE collection = 'system_fields'
  AND item = $1::text;
