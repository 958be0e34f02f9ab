-- outcomes_by_model: success of each model on all its runs of known outcome, with Wilson's
-- interval at 95 % (E. B. Wilson, 1927). Runs of one task are not independent: read the interval
-- as if they were, or take task_outcomes and a clustered one.
-- in: runs(run_id, task_id, model, outcome)
-- out: model VARCHAR, n_runs BIGINT, n_tasks BIGINT, n_known BIGINT, n_success BIGINT, n_unknown BIGINT, rate DOUBLE, low DOUBLE, high DOUBLE
WITH counted AS (
    SELECT model, count(*) AS n_runs, count(DISTINCT task_id) AS n_tasks,
           count(*) FILTER (WHERE outcome <> 'unknown') AS n_known,
           count(*) FILTER (WHERE outcome = 'success') AS n_success,
           count(*) FILTER (WHERE outcome = 'unknown') AS n_unknown
    FROM runs
    GROUP BY model
),
shares AS (
    SELECT *, CASE WHEN n_known > 0 THEN n_success::DOUBLE / n_known END AS p,
           n_known::DOUBLE AS n
    FROM counted
)
SELECT model, n_runs, n_tasks, n_known, n_success, n_unknown, p AS rate,
       CASE WHEN n > 0 THEN greatest(0.0::DOUBLE,
           (p + 1.9207294103470::DOUBLE / n - 1.9599639845401::DOUBLE
            * sqrt(p * (1 - p) / n + 0.9603647051735::DOUBLE / (n * n)))
           / (1 + 3.8414588206940::DOUBLE / n)) END AS low,
       CASE WHEN n > 0 THEN least(1.0::DOUBLE,
           (p + 1.9207294103470::DOUBLE / n + 1.9599639845401::DOUBLE
            * sqrt(p * (1 - p) / n + 0.9603647051735::DOUBLE / (n * n)))
           / (1 + 3.8414588206940::DOUBLE / n)) END AS high
FROM shares
ORDER BY model NULLS LAST
