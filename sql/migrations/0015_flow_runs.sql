-- Flows run: a counter that tells every process of changed flows, and the runs with their logs.

ALTER TABLE system_version ADD COLUMN flows bigint NOT NULL DEFAULT 1;

COMMENT ON COLUMN system_version.flows IS 'Moves with flows and operations';

CREATE TRIGGER system_flows_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_flows
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('flows');

CREATE TRIGGER system_operations_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_operations
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('flows');

CREATE TABLE system_flow_runs (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    flow uuid NOT NULL,
    trigger text NOT NULL,
    state text NOT NULL DEFAULT 'queued',
    attempt integer NOT NULL DEFAULT 0,
    depth integer NOT NULL DEFAULT 0,
    input json,
    data json,
    accountability json,
    steps json,
    result json,
    reason text,
    date_created timestamptz NOT NULL DEFAULT now(),
    date_started timestamptz,
    date_finished timestamptz,
    CONSTRAINT system_flow_runs_pkey PRIMARY KEY (id),
    CONSTRAINT system_flow_runs_state_check CHECK (state IN ('queued', 'running', 'done', 'rejected', 'failed'))
);

CREATE INDEX system_flow_runs_flow_idx ON system_flow_runs (flow, date_created, id);
CREATE INDEX system_flow_runs_date_finished_idx ON system_flow_runs (date_finished) WHERE date_finished IS NOT NULL;

COMMENT ON TABLE system_flow_runs IS 'Runs of flows, with the log of what their operations did; they outlive their flows';
COMMENT ON COLUMN system_flow_runs.trigger IS 'What caused the run: the kind of the flow''s trigger';
COMMENT ON COLUMN system_flow_runs.depth IS 'How many runs have led to this one, each by causing the next';
COMMENT ON COLUMN system_flow_runs.input IS 'What templates see as $trigger, as long as the run may be tried; never shown';
COMMENT ON COLUMN system_flow_runs.data IS 'The same without secrets';
COMMENT ON COLUMN system_flow_runs.accountability IS 'User, role and address of the caller; null is the service itself';
COMMENT ON COLUMN system_flow_runs.steps IS 'What each operation did, without secrets';
COMMENT ON COLUMN system_flow_runs.reason IS 'Why the run was rejected or has failed';

CREATE TABLE system_flow_schedules (
    flow uuid NOT NULL,
    schedule text NOT NULL,
    due timestamptz NOT NULL,
    CONSTRAINT system_flow_schedules_pkey PRIMARY KEY (flow)
);

COMMENT ON TABLE system_flow_schedules IS 'When flows with a schedule run next';
COMMENT ON COLUMN system_flow_schedules.schedule IS 'Time zone and cron expression that the time was computed from';
