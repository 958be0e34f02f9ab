-- suffixes: in how many runs each context of the last three tokens occurs, and how many of those
-- failed. A run counts once for a context, however often it comes back to it.
-- in: runs(run_id, failed), steps(run_id, step, token)
-- out: third BIGINT, second BIGINT, last BIGINT, n BIGINT, n_failed BIGINT
-- with: min_runs BIGINT = 5
WITH contexts AS (
    SELECT run_id, step, token AS last,
           lag(token, 1) OVER (PARTITION BY run_id ORDER BY step) AS second,
           lag(token, 2) OVER (PARTITION BY run_id ORDER BY step) AS third
    FROM steps
),
once AS (
    SELECT DISTINCT run_id, third, second, last
    FROM contexts
    WHERE step >= 2
)
SELECT o.third, o.second, o.last, count(*) AS n, sum(r.failed)::BIGINT AS n_failed
FROM once o JOIN runs r ON o.run_id = r.run_id
WHERE r.failed IS NOT NULL
GROUP BY o.third, o.second, o.last
HAVING count(*) >= $min_runs
ORDER BY o.third, o.second, o.last
