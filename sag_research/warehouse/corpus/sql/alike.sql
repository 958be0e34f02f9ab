-- alike: groups of runs of one task that did the same, token by token, to their ends: copies, or
-- a model that repeats itself.
-- in: runs(run_id, task_id, failed, n_steps), steps(run_id, step, prefix)
-- out: task_id VARCHAR, n_steps BIGINT, prefix BIGINT, n BIGINT, n_known BIGINT, n_failed BIGINT, first_run VARCHAR
-- with: min_runs BIGINT = 2
SELECT r.task_id, r.n_steps, s.prefix, count(*) AS n, count(r.failed) AS n_known,
       sum(r.failed)::BIGINT AS n_failed, min(r.run_id) AS first_run
FROM runs r JOIN steps s ON r.run_id = s.run_id AND s.step = r.n_steps - 1
GROUP BY r.task_id, r.n_steps, s.prefix
HAVING count(*) >= $min_runs
ORDER BY r.task_id, r.n_steps, s.prefix
