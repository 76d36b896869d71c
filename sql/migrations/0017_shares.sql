-- Shares: failed passwords are counted, and a change of a share ends what callers knew of it.

ALTER TABLE system_shares
    ADD COLUMN failed_logins integer NOT NULL DEFAULT 0,
    ADD COLUMN login_after timestamptz;

COMMENT ON COLUMN system_shares.login_after IS 'After too many wrong passwords, when the next one is looked at';

CREATE FUNCTION system_bump_for_shares() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT id, collection, item, role, password, date_start, date_end, user_created FROM new_rows
        EXCEPT
        SELECT id, collection, item, role, password, date_start, date_end, user_created FROM old_rows
    ) THEN
        EXECUTE format('UPDATE %I.system_version SET access = access + 1', TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION system_bump_for_shares() IS 'Moves the access counter when an update changed what a share shows; a use of it moves nothing';

CREATE TRIGGER system_shares_bump
    AFTER DELETE OR TRUNCATE ON system_shares
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('access');

CREATE TRIGGER system_shares_bump_on_update
    AFTER UPDATE ON system_shares
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump_for_shares();
