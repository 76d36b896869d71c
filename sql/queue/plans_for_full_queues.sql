-- Plans are kept as long as a session, and one that was made while the queue was nearly empty reads all of it for each
-- job: with thousands of jobs that takes minutes. So these functions find each row by an index, and the first job in the
-- order of one; the checks of foreign keys within them, too.
ALTER FUNCTION procrastinate_fetch_job_v2(character varying [], bigint) SET enable_sort = off;
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT oid
        FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace
          AND proname IN (
              'procrastinate_fetch_job_v2',
              'procrastinate_finish_job_v1',
              'procrastinate_cancel_job_v1',
              'procrastinate_retry_job_v2',
              'procrastinate_trigger_function_status_events_insert_v1',
              'procrastinate_trigger_function_status_events_update_v1',
              'procrastinate_trigger_function_scheduled_events_v1',
              'procrastinate_trigger_abort_requested_events_procedure_v1',
              'procrastinate_unlink_periodic_defers_v1'
          )
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', routine);
    END LOOP;
END
$$;
