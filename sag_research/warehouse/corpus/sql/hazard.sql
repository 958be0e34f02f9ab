-- hazard: after each step, the runs of known outcome that are still running, and those that end
-- there, as failures and as successes (competing risks).
-- in: runs(run_id, failed, n_steps)
-- out: step BIGINT, alive BIGINT, failed_later BIGINT, end_failed BIGINT, end_succeeded BIGINT
WITH ends AS (
    SELECT n_steps - 1 AS step, sum(failed)::BIGINT AS end_failed,
           sum(1 - failed)::BIGINT AS end_succeeded
    FROM runs
    WHERE failed IS NOT NULL AND n_steps > 0
    GROUP BY n_steps
),
later AS (
    SELECT step, end_failed, end_succeeded,
           sum(end_failed) OVER (ORDER BY step DESC)::BIGINT AS failed_later,
           sum(end_succeeded) OVER (ORDER BY step DESC)::BIGINT AS succeeded_later
    FROM ends
)
SELECT step, failed_later + succeeded_later AS alive, failed_later, end_failed, end_succeeded
FROM later
ORDER BY step
