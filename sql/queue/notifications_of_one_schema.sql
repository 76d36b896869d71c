-- Installations in several schemas of one database do not wake each other's workers: PostgreSQL's channels are those of
-- the database, so that the names of these hold the schema (`channel_of_schema` in cms/jobs/queue.py).
CREATE OR REPLACE FUNCTION procrastinate_notify_queue_job_inserted_v1()
    RETURNS trigger
    LANGUAGE plpgsql
AS $$
DECLARE
    payload text := json_build_object('type', 'job_inserted', 'job_id', new.id)::text;
    suffix text := '@' || left(md5(TG_TABLE_SCHEMA), 8);
BEGIN
    PERFORM pg_notify('procrastinate_queue_v1#' || new.queue_name || suffix, payload);
    PERFORM pg_notify('procrastinate_any_queue_v1' || suffix, payload);
    RETURN new;
END
$$;

CREATE OR REPLACE FUNCTION procrastinate_notify_queue_abort_job_v1()
    RETURNS trigger
    LANGUAGE plpgsql
AS $$
DECLARE
    payload text := json_build_object('type', 'abort_job_requested', 'job_id', new.id)::text;
    suffix text := '@' || left(md5(TG_TABLE_SCHEMA), 8);
BEGIN
    PERFORM pg_notify('procrastinate_queue_v1#' || new.queue_name || suffix, payload);
    PERFORM pg_notify('procrastinate_any_queue_v1' || suffix, payload);
    RETURN new;
END
$$;
