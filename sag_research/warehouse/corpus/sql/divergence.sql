-- divergence: for each task with both outcomes, how deep a failed and a successful run of it went
-- the same way at most.
-- in: runs(run_id, task_id, failed), steps(run_id, step, prefix)
-- out: task_id VARCHAR, n_failed BIGINT, n_succeeded BIGINT, common_steps BIGINT
WITH tasks AS (
    SELECT task_id, sum(failed)::BIGINT AS n_failed, sum(1 - failed)::BIGINT AS n_succeeded
    FROM runs
    WHERE failed IS NOT NULL
    GROUP BY task_id
    HAVING min(failed) = 0 AND max(failed) = 1
),
shared AS (
    SELECT r.task_id, s.step + 1 AS depth
    FROM runs r JOIN tasks t ON r.task_id = t.task_id JOIN steps s ON s.run_id = r.run_id
    WHERE r.failed IS NOT NULL
    GROUP BY r.task_id, s.step, s.prefix
    HAVING min(r.failed) = 0 AND max(r.failed) = 1
)
SELECT t.task_id, t.n_failed, t.n_succeeded, coalesce(max(s.depth), 0) AS common_steps
FROM tasks t LEFT JOIN shared s ON t.task_id = s.task_id
GROUP BY t.task_id, t.n_failed, t.n_succeeded
ORDER BY t.task_id
