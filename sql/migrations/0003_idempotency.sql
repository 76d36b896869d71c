-- A call that is sent again after a lost answer gets that answer, and does nothing a second time.

CREATE TABLE system_idempotency (
    caller text NOT NULL,
    key text NOT NULL,
    request text NOT NULL,
    answer bytea,
    is_record boolean NOT NULL DEFAULT false,
    created timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_idempotency_pkey PRIMARY KEY (caller, key)
);

CREATE INDEX system_idempotency_created_idx ON system_idempotency (created);

COMMENT ON TABLE system_idempotency IS 'Answers of calls that named an Idempotency-Key, written with what the call wrote; kept for a day';
COMMENT ON COLUMN system_idempotency.key IS 'SHA-256 digest of the key';
COMMENT ON COLUMN system_idempotency.request IS 'SHA-256 digest of method, address and body';
COMMENT ON COLUMN system_idempotency.answer IS 'The body of the answer; null where there was none';
COMMENT ON COLUMN system_idempotency.is_record IS 'The answer is what stands under data, and not the whole body';
