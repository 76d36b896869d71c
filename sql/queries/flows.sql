-- Flows and their operations.

-- name: find_flow_definitions
-- What flows say: the trigger and its options, the first operation, and all operations as JSON.
SELECT
    flows.id::text,
    flows.trigger,
    flows.options::text,
    flows.operation::text,
    coalesce(
        (
            SELECT json_agg(
                json_build_object(
                    'id', operations.id,
                    'key', operations.key,
                    'type', operations.type,
                    'options', operations.options,
                    'resolve', operations.resolve,
                    'reject', operations.reject
                )
                ORDER BY operations.date_created, operations.position_x, operations.position_y,
                    operations.id
            )
            FROM system_operations AS operations
            WHERE operations.flow = flows.id
        ),
        '[]'
    )::text,
    flows.status = 'active',
    flows.accountability
FROM system_flows AS flows
WHERE flows.id = ANY ($1::uuid[]);

-- name: find_flow_ids
-- The ids of all flows.
SELECT id::text
FROM system_flows;

-- name: find_flows_of_operations
-- The flows that operations belong to, and those that lead to one of them: the flow that an operation has left, too.
SELECT flow::text
FROM system_operations
WHERE id = ANY ($1::uuid[])
   OR resolve = ANY ($1::uuid[])
   OR reject = ANY ($1::uuid[])
UNION
SELECT id::text
FROM system_flows
WHERE operation = ANY ($1::uuid[]);

-- name: clear_beginnings
-- Lets flows that begin with one of these operations find their beginning themselves.
UPDATE system_flows
SET operation = NULL
WHERE operation = ANY ($1::uuid[]);

-- name: list_flows
-- Id, status, trigger and name of every flow, the oldest first.
SELECT id::text, status, trigger, name
FROM system_flows
ORDER BY date_created, id;

-- name: queue_runs
-- Queues a run of the flow $1 for each JSON text of $2, caused by the trigger $3, with the accountability $4 and the
-- depth $5; returns the runs in their order.
WITH runs AS (
    INSERT INTO system_flow_runs (flow, trigger, input, accountability, depth)
    SELECT $1::uuid, $3::text, data, $4::json, $5::integer
    FROM unnest($2::text[]::json[]) WITH ORDINALITY AS cause (data, number)
    ORDER BY number
    RETURNING id
),
jobs AS (
    INSERT INTO procrastinate_jobs (queue_name, task_name, args)
    SELECT 'flow', 'flow', jsonb_build_object('payload', jsonb_build_object('run', id))
    FROM runs
)
SELECT id::text
FROM runs;

-- name: queue_login_runs
-- Queues a run of each action flow that waits for logins, for the user $1 at the address $2.
WITH runs AS (
    INSERT INTO system_flow_runs (flow, trigger, input, accountability)
    SELECT
        flow.id,
        'event',
        json_build_object('event', 'auth.login', 'payload', json_build_object('user', account.id)),
        json_build_object('user', account.id, 'role', account.role, 'ip', $2::text)
    FROM system_users AS account
    CROSS JOIN system_flows AS flow
    WHERE account.id = $1::uuid
      AND flow.status = 'active'
      AND flow.trigger = 'event'
      AND flow.options ->> 'type' = 'action'
      AND (flow.options -> 'scope')::jsonb ? 'auth.login'
    ORDER BY flow.date_created, flow.id
    RETURNING id
)
INSERT INTO procrastinate_jobs (queue_name, task_name, args)
SELECT 'flow', 'flow', jsonb_build_object('payload', jsonb_build_object('run', id))
FROM runs;

-- name: take_run
-- Begins an attempt at a run; none for a run that has ended. A run that another worker has begun is taken over: the
-- number of the attempt keeps that worker from writing what becomes of it. The last column is the counter of flows.
UPDATE system_flow_runs AS run
SET state = 'running',
    attempt = run.attempt + 1,
    date_started = date_trunc('milliseconds', now()),
    reason = NULL,
    worker = (SELECT worker_id FROM procrastinate_jobs WHERE id = $2::bigint)
WHERE id = $1::uuid
  AND state IN ('queued', 'running')
RETURNING
    flow::text,
    trigger,
    attempt,
    depth,
    input::text,
    accountability::text,
    (SELECT flows FROM system_version);

-- name: finish_run
-- Ends a run in the state $2 with the data $3, steps $4, result $5 and reason $6, and records it as activity if $7;
-- returns whether the attempt $8 was still the one under way.
WITH finished AS (
    UPDATE system_flow_runs
    SET state = $2::text,
        data = $3::json,
        input = CASE WHEN $2::text <> 'done' THEN input END,
        steps = $4::json,
        result = $5::json,
        reason = $6::text,
        date_finished = date_trunc('milliseconds', now())
    WHERE id = $1::uuid
      AND attempt = $8::integer
      AND state = 'running'
    RETURNING flow, accountability
),
activity AS (
    INSERT INTO system_activity (action, "user", ip, collection, item)
    SELECT 'run', (accountability ->> 'user')::uuid, accountability ->> 'ip', 'system_flows', flow::text
    FROM finished
    WHERE $7::boolean
)
SELECT flow::text
FROM finished;

-- name: delete_run
-- Deletes a run that is to leave nothing; returns whether the attempt $2 was still the one under way.
DELETE FROM system_flow_runs
WHERE id = $1::uuid
  AND attempt = $2::integer
  AND state = 'running'
RETURNING id::text;

-- name: requeue_run
-- Notes the steps $2 of an attempt and the reason $3 of its failure, after which the job of the run is tried again;
-- returns whether the attempt $4 was still the one under way.
UPDATE system_flow_runs
SET state = 'queued',
    steps = $2::json,
    reason = $3::text
WHERE id = $1::uuid
  AND attempt = $4::integer
  AND state = 'running'
RETURNING id::text;

-- name: retry_run
-- Lets a run that was rejected or has failed run again.
UPDATE system_flow_runs
SET state = 'queued',
    date_finished = NULL
WHERE id = $1::uuid
  AND state IN ('rejected', 'failed')
RETURNING id::text;

-- name: find_run
-- The state of a run.
SELECT state
FROM system_flow_runs
WHERE id = $1::uuid;

-- name: insert_finished_run
-- Inserts a run that ended at once: flow, trigger, state, depth, data, accountability, steps, result, reason, the
-- time of its beginning, and its input for another attempt; records it as activity. With $12 the commit does not wait
-- for the disk.
WITH run AS (
    INSERT INTO system_flow_runs (
        flow, trigger, state, attempt, depth, data, accountability, steps, result, reason, date_created, date_started,
        date_finished, input
    )
    SELECT
        id, $2::text, $3::text, 1, $4::integer, $5::json, $6::json, $7::json, $8::json, $9::text, $10::timestamptz,
        $10::timestamptz, date_trunc('milliseconds', clock_timestamp()), $11::json
    FROM system_flows
    WHERE id = $1::uuid
      AND ($12::boolean IS NOT TRUE OR set_config('synchronous_commit', 'off', TRUE) = 'off')
    RETURNING flow, accountability
)
INSERT INTO system_activity (action, "user", ip, collection, item)
SELECT 'run', (accountability ->> 'user')::uuid, accountability ->> 'ip', 'system_flows', flow::text
FROM run;

-- name: lock_lost_runs
-- Whether this transaction alone may queue lost runs: of two at once, each would queue a job for the same run.
SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' system_flow_runs', 0));

-- name: requeue_lost_runs
-- Queues runs again that no job is left for, unless a worker with a heartbeat in the last $1 seconds does them; ends
-- those that were tried $2 times. Returns each run, and whether it runs again.
WITH without_job AS MATERIALIZED (
    -- EXCEPT and not NOT EXISTS: a join may compare each run with each job, because the statistics of a queue that was
    -- empty a moment ago say that it is.
    SELECT run.id::text
    FROM system_flow_runs AS run
    WHERE run.date_finished IS NULL
      AND run.state IN ('queued', 'running')
    EXCEPT
    SELECT job.args -> 'payload' ->> 'run'
    FROM procrastinate_jobs AS job
    WHERE job.task_name = 'flow'
      AND job.status IN ('todo', 'doing')
),
lost AS MATERIALIZED (
    SELECT run.id, run.attempt < $2::integer AS again
    FROM without_job
    JOIN system_flow_runs AS run ON run.id = without_job.id::uuid
    WHERE run.date_finished IS NULL
      AND run.state IN ('queued', 'running')
      AND NOT EXISTS (
          SELECT
          FROM procrastinate_workers AS worker
          WHERE worker.id = run.worker
            AND worker.last_heartbeat >= now() - make_interval(secs => $1::double precision)
            AND run.state = 'running'
      )
    FOR UPDATE OF run SKIP LOCKED  -- a locked run is being finished
),
requeued AS (
    UPDATE system_flow_runs AS run
    SET state = CASE WHEN lost.again THEN 'queued' ELSE 'failed' END,
        reason = CASE WHEN lost.again THEN 'It has lost its worker.' ELSE 'It has lost its worker too often.' END,
        date_finished = CASE WHEN NOT lost.again THEN date_trunc('milliseconds', now()) END
    FROM lost
    WHERE run.id = lost.id
),
jobs AS (
    INSERT INTO procrastinate_jobs (queue_name, task_name, args)
    SELECT 'flow', 'flow', jsonb_build_object('payload', jsonb_build_object('run', id))
    FROM lost
    WHERE again
)
SELECT id::text, again
FROM lost;

-- name: delete_old_runs
-- Deletes up to $2 runs that ended more than $1 seconds ago, and returns a row for each.
DELETE FROM system_flow_runs
WHERE id IN (
    SELECT id
    FROM system_flow_runs
    WHERE date_finished < now() - make_interval(secs => $1::double precision)
    ORDER BY date_finished
    LIMIT $2::integer
)
RETURNING 1;

-- name: find_schedules
-- The active flows with a schedule: id, cron expression, the schedule that the next time was computed from, that time,
-- and the time now. Times that are known of other flows are forgotten, so that none of them is made up for later.
WITH scheduled AS (
    SELECT id, options ->> 'cron' AS cron
    FROM system_flows
    WHERE status = 'active'
      AND trigger = 'schedule'
),
forgotten AS (
    DELETE FROM system_flow_schedules
    WHERE flow NOT IN (SELECT id FROM scheduled)
)
SELECT scheduled.id::text, scheduled.cron, known.schedule, known.due, now()
FROM scheduled
LEFT JOIN system_flow_schedules AS known ON known.flow = scheduled.id;

-- name: set_schedule
-- Notes when the flow $1 runs next by the schedule $2: at $3.
INSERT INTO system_flow_schedules (flow, schedule, due)
VALUES ($1::uuid, $2::text, $3::timestamptz)
ON CONFLICT (flow) DO UPDATE
SET schedule = excluded.schedule,
    due = excluded.due
WHERE system_flow_schedules.schedule <> excluded.schedule;

-- name: run_schedule
-- Queues the run of the flow $1 that is due at $2, with the data $4, and notes the next time $3; another machine may
-- have been quicker.
WITH taken AS (
    UPDATE system_flow_schedules
    SET due = $3::timestamptz
    WHERE flow = $1::uuid
      AND due = $2::timestamptz
    RETURNING flow
),
runs AS (
    INSERT INTO system_flow_runs (flow, trigger, input)
    SELECT flow, 'schedule', $4::json
    FROM taken
    RETURNING id
),
jobs AS (
    INSERT INTO procrastinate_jobs (queue_name, task_name, args)
    SELECT 'flow', 'flow', jsonb_build_object('payload', jsonb_build_object('run', id))
    FROM runs
)
SELECT id::text
FROM runs;
