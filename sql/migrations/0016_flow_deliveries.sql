-- Signed requests of flows: a log of their deliveries, and those that fail for days.

CREATE TABLE system_flow_deliveries (
    id bigint GENERATED ALWAYS AS IDENTITY,
    flow uuid NOT NULL,
    operation uuid NOT NULL,
    run uuid,
    message text NOT NULL,
    url text NOT NULL,
    attempt integer NOT NULL,
    status integer,
    reason text,
    milliseconds double precision NOT NULL,
    "timestamp" timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_flow_deliveries_pkey PRIMARY KEY (id),
    CONSTRAINT system_flow_deliveries_flow_fkey FOREIGN KEY (flow) REFERENCES system_flows (id) ON DELETE CASCADE,
    CONSTRAINT system_flow_deliveries_operation_fkey FOREIGN KEY (operation)
        REFERENCES system_operations (id) ON DELETE CASCADE
);

CREATE INDEX system_flow_deliveries_flow_idx ON system_flow_deliveries (flow, id);
CREATE INDEX system_flow_deliveries_operation_idx ON system_flow_deliveries (operation);
CREATE INDEX system_flow_deliveries_timestamp_idx ON system_flow_deliveries ("timestamp");

COMMENT ON TABLE system_flow_deliveries IS 'Attempts to deliver signed requests of flows';
COMMENT ON COLUMN system_flow_deliveries.run IS 'The run, which may be deleted before; null is one that is not kept';
COMMENT ON COLUMN system_flow_deliveries.message IS 'The header webhook-id, the same at every attempt of a run';
COMMENT ON COLUMN system_flow_deliveries.url IS 'Where it went, without the query';
COMMENT ON COLUMN system_flow_deliveries.status IS 'The status of the answer; null is no answer';
COMMENT ON COLUMN system_flow_deliveries.reason IS 'Why it failed; null is a success';

CREATE TABLE system_flow_outages (
    operation uuid NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    failures integer NOT NULL DEFAULT 1,
    CONSTRAINT system_flow_outages_pkey PRIMARY KEY (operation),
    CONSTRAINT system_flow_outages_operation_fkey FOREIGN KEY (operation)
        REFERENCES system_operations (id) ON DELETE CASCADE
);

COMMENT ON TABLE system_flow_outages IS 'Signed requests that have failed ever since their last success';
