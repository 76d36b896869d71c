-- Runs of flows that no job is left for are found soon, and told from those that a worker still does.

ALTER TABLE system_flow_runs ADD COLUMN worker bigint;

COMMENT ON COLUMN system_flow_runs.worker IS 'The worker of the last attempt; null is one that the queue does not know';

CREATE INDEX system_flow_runs_unfinished_idx ON system_flow_runs (date_created) WHERE date_finished IS NULL;
