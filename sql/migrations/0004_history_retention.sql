-- History that is older than people want to keep goes by whole months, which costs nothing however much it is.

CREATE FUNCTION system_prune_history(keep interval, OUT dropped text[], OUT deleted bigint)
LANGUAGE plpgsql
SET timezone = 'UTC'
AS $$
DECLARE
    oldest timestamptz := date_trunc('month', now() - keep);
    month record;
    gone bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('system_make_partitions'));
    dropped := '{}';
    deleted := 0;
    FOR month IN
        SELECT child.relname AS name, format('%I.%I', n.nspname, child.relname) AS place
          FROM pg_inherits
          JOIN pg_class AS child ON child.oid = inhrelid
          JOIN pg_namespace AS n ON n.oid = child.relnamespace
         WHERE inhparent IN ('system_activity'::regclass, 'system_revisions'::regclass)
           AND child.relname ~ '^system_(activity|revisions)_\d{4}_\d\d$'
           AND to_date(right(child.relname, 7), 'YYYY_MM') < oldest
         ORDER BY child.relname
    LOOP
        EXECUTE format('DROP TABLE %s', month.place);
        dropped := dropped || month.name::text;
    END LOOP;
    DELETE FROM system_activity_default WHERE "timestamp" < oldest;
    GET DIAGNOSTICS gone = ROW_COUNT;
    deleted := deleted + gone;
    DELETE FROM system_revisions_default WHERE created < oldest;
    GET DIAGNOSTICS gone = ROW_COUNT;
    deleted := deleted + gone;
END
$$;

COMMENT ON FUNCTION system_prune_history(interval) IS 'Drops the months of activity and revisions that ended before so long ago, and deletes older rows that had no month; returns their names, and how many rows';
