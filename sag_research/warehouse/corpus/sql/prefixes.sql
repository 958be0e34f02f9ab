-- prefixes: how many runs of known outcome begin with each prefix, and how many of them failed.
-- in: runs(run_id, task_id, failed), steps(run_id, step, prefix)
-- out: depth BIGINT, prefix BIGINT, n BIGINT, n_failed BIGINT, n_tasks BIGINT, example VARCHAR
-- with: min_runs BIGINT = 5, max_depth BIGINT = 1000000
SELECT s.step + 1 AS depth, s.prefix, count(*) AS n, sum(r.failed)::BIGINT AS n_failed,
       count(DISTINCT r.task_id) AS n_tasks, min(s.run_id) AS example
FROM steps s JOIN runs r ON s.run_id = r.run_id
WHERE r.failed IS NOT NULL AND s.step < $max_depth
GROUP BY s.step, s.prefix
HAVING count(*) >= $min_runs
ORDER BY depth, s.prefix
