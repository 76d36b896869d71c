-- A worker takes the first job of the order by the index of that order. A plan with a sort first compares all waiting jobs
-- with all others, which takes minutes where thousands of jobs come into a queue that was nearly empty: plans are made for
-- its size, by statistics of that time.
ALTER FUNCTION procrastinate_fetch_job_v2(character varying [], bigint) SET enable_sort = off;
