-- Logins: three modes of sessions, second factors, slow logins, registrations that wait for their link.

-- That a refresh token was used before is now told by its signature, however old it is.
ALTER TABLE system_sessions
    DROP COLUMN previous,
    ADD COLUMN mode text NOT NULL DEFAULT 'json',
    ADD CONSTRAINT system_sessions_mode_check CHECK (mode IN ('json', 'cookie', 'session'));

COMMENT ON COLUMN system_sessions.token IS 'SHA-256 digest of the current refresh token, or of the session cookie';
COMMENT ON COLUMN system_sessions.mode IS 'What the client holds: json both tokens, cookie the refresh token in a cookie, session one cookie for everything';

ALTER TABLE system_users
    ADD COLUMN login_after timestamptz,
    ADD COLUMN tfa_step bigint,
    ADD COLUMN unverified boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN system_users.login_after IS 'Until then no login is tried: how the last administrator is slowed down instead of suspended; never shown';
COMMENT ON COLUMN system_users.tfa_step IS 'The step of time whose code was used last, so that none is used twice; never shown';
COMMENT ON COLUMN system_users.unverified IS 'A registration whose link has not been followed yet; never shown';

CREATE TABLE system_recovery_codes (
    "user" uuid NOT NULL,
    digest text NOT NULL,
    CONSTRAINT system_recovery_codes_pkey PRIMARY KEY ("user", digest),
    CONSTRAINT system_recovery_codes_user_fkey FOREIGN KEY ("user") REFERENCES system_users (id) ON DELETE CASCADE
);

COMMENT ON TABLE system_recovery_codes IS 'Codes that stand in for a second factor, each once';
COMMENT ON COLUMN system_recovery_codes.digest IS 'SHA-256 of the code without its hyphens';
