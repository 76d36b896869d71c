-- Sessions know how they end at the provider that opened them.
ALTER TABLE system_sessions ADD COLUMN logout_url text;

COMMENT ON COLUMN system_sessions.logout_url IS 'Where the session at the provider of an external login is ended';

-- Answers of SAML: none is taken twice, on whichever machine it comes.
CREATE TABLE system_saml_answers (
    provider text NOT NULL,
    assertion text NOT NULL,
    request text NOT NULL,
    profile json,
    expires timestamptz NOT NULL,
    CONSTRAINT system_saml_answers_pkey PRIMARY KEY (provider, assertion)
);

CREATE INDEX system_saml_answers_request_idx ON system_saml_answers (request);
CREATE INDEX system_saml_answers_expires_idx ON system_saml_answers (expires);

COMMENT ON TABLE system_saml_answers IS 'Answers of login providers, so that none counts twice';
COMMENT ON COLUMN system_saml_answers.profile IS 'The user, until the browser that began the login asks for it';
