-- The fingerprint of the structure is called so; its former name stays for services of the version before.

ALTER FUNCTION system_mark() RENAME TO system_structure_fingerprint;

-- Web servers of the version before serve until they are restarted, and their statements call this one. PostgreSQL
-- replaces the call by its body, so that it costs nothing. A later version drops it.
CREATE FUNCTION system_mark() RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT system_structure_fingerprint()
$$;

COMMENT ON FUNCTION system_mark() IS 'The former name of system_structure_fingerprint(), for services of the version before';
