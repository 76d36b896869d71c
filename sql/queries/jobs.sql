-- name: defer_jobs
-- Puts a job of the task $1 in the queue of its name for each JSON text of $2; workers see them after the commit.
SELECT procrastinate_defer_jobs_v1(array_agg(
    ROW($1::text, $1::text, 0, NULL, NULL, jsonb_build_object('payload', payload), NULL)::procrastinate_job_to_defer_v1
    ORDER BY position
))
FROM unnest($2::text[]::jsonb[]) WITH ORDINALITY AS job (payload, position);

-- name: lock_stalled_jobs
-- Whether this transaction alone may give back stalled jobs: of two at once, the second would take a job from the
-- worker that runs it again.
SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' system_queue', 0));

-- name: retry_stalled_jobs
-- Lets jobs run again whose worker is gone, or silent for $1 seconds; a job that was tried $2 times has failed.
WITH stalled AS MATERIALIZED (
    SELECT job.id, job.task_name, job.attempts < $2::integer AS again
    FROM procrastinate_jobs AS job
    LEFT JOIN procrastinate_workers AS worker ON worker.id = job.worker_id
    WHERE job.status = 'doing'
      AND (job.worker_id IS NULL OR worker.last_heartbeat < now() - make_interval(secs => $1::double precision))
    FOR UPDATE OF job SKIP LOCKED  -- a locked job is being finished, or taken by another worker
)
SELECT
    id,
    task_name,
    again,
    CASE
        WHEN again THEN procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL)
        ELSE procrastinate_finish_job_v1(id, 'failed', FALSE)
    END::text AS done
FROM stalled;

-- name: retry_jobs_of_worker
-- Lets another worker run the jobs that an ending worker could not finish.
SELECT id, task_name, procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL)::text AS done
FROM procrastinate_jobs
WHERE worker_id = $1::bigint
  AND status = 'doing';

-- name: leave_job
-- Lets job $1 of worker $2 be one whose worker is gone.
UPDATE procrastinate_jobs
SET worker_id = NULL
WHERE id = $1::bigint
  AND worker_id = $2::bigint
  AND status = 'doing';

-- name: delete_finished_jobs
-- Deletes at most $2 jobs that ended more than $1 days ago, and with them their events.
DELETE FROM procrastinate_jobs
WHERE id = ANY (ARRAY(
    SELECT job.id
    FROM procrastinate_jobs AS job
    WHERE job.status NOT IN ('todo', 'doing')
      -- what was asked for of large tables stays so until it is withdrawn
      AND NOT (job.queue_name = 'build' AND job.status = 'failed')
      AND NOT EXISTS (
          SELECT FROM procrastinate_events AS event
          WHERE event.job_id = job.id
            AND event.at > now() - make_interval(days => $1::integer)
      )
    LIMIT $2::integer
))
RETURNING id;

-- name: count_jobs
-- The number of jobs that are due, of failed ones that are kept, and of workers that were alive in the last $1 seconds;
-- each has $2 rows.
SELECT
    (
        SELECT count(*) FROM procrastinate_jobs
        WHERE status = 'todo' AND coalesce(scheduled_at <= now(), TRUE)
    ) AS due,
    (SELECT count(*) FROM procrastinate_jobs WHERE status = 'failed') AS failed,
    (
        SELECT ceil(count(*) / $2::numeric)::bigint FROM procrastinate_workers
        WHERE last_heartbeat > now() - make_interval(secs => $1::double precision)
    ) AS workers;

-- name: find_queue_depth
-- The number of jobs that are due, and how many seconds ago the first of them became due.
-- Each table is read once at most, whatever the plan is: it may have been made for an empty queue.
SELECT
    due.jobs,
    coalesce(
        extract(EPOCH FROM now() - least(
            due.first_scheduled,
            (SELECT min(event.at) FROM procrastinate_events AS event WHERE event.job_id = due.first_deferred)
        )),
        0
    )::double precision AS oldest_seconds
FROM (
    SELECT
        count(*) AS jobs,
        min(job.scheduled_at) AS first_scheduled,
        min(job.id) FILTER (WHERE job.scheduled_at IS NULL) AS first_deferred
    FROM procrastinate_jobs AS job
    WHERE job.status = 'todo'
      AND coalesce(job.scheduled_at <= now(), TRUE)
) AS due;
