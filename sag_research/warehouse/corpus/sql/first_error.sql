-- first_error: by the step of a run's first error (what came back says so, or an exit code that
-- is not 0), how many runs and how many of them failed; NULL: no error at all.
-- in: runs(run_id, failed), steps(run_id, step, token, exit_code), tokens(token, result)
-- out: step BIGINT, n BIGINT, n_failed BIGINT
WITH errors AS (
    SELECT s.run_id, min(s.step) AS step
    FROM steps s JOIN tokens t ON s.token = t.token
    WHERE t.result IN ('error', 'traceback', 'syntax', 'import', 'not-found', 'timeout',
                       'unavailable', 'mismatch', 'forbidden', 'test-fail')
          OR s.exit_code <> 0
    GROUP BY s.run_id
)
SELECT e.step, count(*) AS n, sum(r.failed)::BIGINT AS n_failed
FROM runs r LEFT JOIN errors e ON r.run_id = e.run_id
WHERE r.failed IS NOT NULL
GROUP BY e.step
ORDER BY e.step NULLS LAST
