-- A new user changes nothing that any process remembers: nobody was found for it before.

DROP TRIGGER system_users_bump ON system_users;

CREATE TRIGGER system_users_bump
    AFTER DELETE OR TRUNCATE ON system_users
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('access');
