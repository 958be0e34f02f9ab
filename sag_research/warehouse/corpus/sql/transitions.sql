-- transitions: how often one token follows another, in failed and in successful runs; the end of
-- a run is NULL.
-- in: runs(run_id, failed), steps(run_id, step, token), tokens(token, name)
-- out: name VARCHAR, next VARCHAR, n_failed BIGINT, n_succeeded BIGINT
-- with: min_count BIGINT = 1
WITH pairs AS (
    SELECT run_id, token, lead(token) OVER (PARTITION BY run_id ORDER BY step) AS next
    FROM steps
),
counted AS (
    SELECT p.token, p.next, sum(r.failed)::BIGINT AS n_failed,
           sum(1 - r.failed)::BIGINT AS n_succeeded
    FROM pairs p JOIN runs r ON p.run_id = r.run_id
    WHERE r.failed IS NOT NULL
    GROUP BY p.token, p.next
    HAVING count(*) >= $min_count
)
SELECT a.name, b.name AS next, c.n_failed, c.n_succeeded
FROM counted c JOIN tokens a ON c.token = a.token LEFT JOIN tokens b ON c.next = b.token
ORDER BY a.name, b.name NULLS LAST
