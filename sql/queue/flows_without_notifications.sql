-- Jobs of flows notify nobody: transactions that notify commit one after the other, each after its own write to the disk.
-- Workers look for these jobs instead (`Task.poll` in cms/tasks.py).
DROP TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1 ON procrastinate_jobs;
CREATE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1
AFTER INSERT ON procrastinate_jobs
FOR EACH ROW WHEN (new.status = 'todo'::procrastinate_job_status AND new.queue_name <> 'flow')
EXECUTE PROCEDURE procrastinate_notify_queue_job_inserted_v1();
