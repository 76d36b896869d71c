-- Sessions know how they end at the provider that opened them.
ALTER TABLE system_sessions ADD COLUMN logout_url text;

COMMENT ON COLUMN system_sessions.logout_url IS 'Where the session at the provider of an external login is ended';
