-- dead_ends: the shortest prefixes after which at least the given share of the runs failed;
-- the share of the prefix one step before was lower. Small groups that all failed are common by
-- chance: base is the share of failures among all runs of known outcome, to compare with.
-- in: runs(run_id, task_id, failed), steps(run_id, step, prefix)
-- out: depth BIGINT, prefix BIGINT, n BIGINT, n_failed BIGINT, n_tasks BIGINT, before_n BIGINT, before_failed BIGINT, base_n BIGINT, base_failed BIGINT, example VARCHAR
-- with: min_runs BIGINT = 5, min_percent BIGINT = 90
WITH known AS (
    SELECT s.run_id, s.step, s.prefix, r.task_id, r.failed,
           lag(s.prefix) OVER (PARTITION BY s.run_id ORDER BY s.step) AS before
    FROM steps s JOIN runs r ON s.run_id = r.run_id
    WHERE r.failed IS NOT NULL
),
counted AS (
    SELECT step, prefix, min(before) AS before, count(*) AS n, sum(failed)::BIGINT AS n_failed,
           count(DISTINCT task_id) AS n_tasks, min(run_id) AS example
    FROM known
    GROUP BY step, prefix
    HAVING count(*) >= $min_runs
),
base AS (
    SELECT count(*) AS base_n, sum(failed)::BIGINT AS base_failed
    FROM runs
    WHERE failed IS NOT NULL
)
SELECT c.step + 1 AS depth, c.prefix, c.n, c.n_failed, c.n_tasks,
       coalesce(b.n, base_n) AS before_n, coalesce(b.n_failed, base_failed) AS before_failed,
       base_n, base_failed, c.example
FROM counted c
     LEFT JOIN counted b ON b.step = c.step - 1 AND b.prefix = c.before
     CROSS JOIN base
WHERE c.n_failed * 100 >= c.n * $min_percent
      AND coalesce(b.n_failed, base_failed) * 100 < coalesce(b.n, base_n) * $min_percent
ORDER BY depth, c.prefix
