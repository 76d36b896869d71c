-- A refresh token answers the same next one for some seconds.

ALTER TABLE system_sessions ADD COLUMN used_tokens jsonb NOT NULL DEFAULT '{}';

COMMENT ON COLUMN system_sessions.used_tokens IS 'Digests of refresh tokens before the current one, with the times of their use in the last 10 seconds';
