-- Sessions of users of a provider are renewed only while the provider confirms these users.

ALTER TABLE system_sessions ADD COLUMN provider_token text;

COMMENT ON COLUMN system_sessions.provider_token IS 'The refresh token of the provider that confirmed the user, encrypted by the service';
