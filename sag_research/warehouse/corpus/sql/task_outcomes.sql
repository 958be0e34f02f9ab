-- task_outcomes: runs, successes and failures of each task and model: what pass@k, paired
-- differences and clustered intervals are made of.
-- in: runs(run_id, task_id, model, outcome)
-- out: task_id VARCHAR, model VARCHAR, n_runs BIGINT, n_success BIGINT, n_failure BIGINT, n_unknown BIGINT
SELECT task_id, model, count(*) AS n_runs,
       count(*) FILTER (WHERE outcome = 'success') AS n_success,
       count(*) FILTER (WHERE outcome = 'failure') AS n_failure,
       count(*) FILTER (WHERE outcome = 'unknown') AS n_unknown
FROM runs
GROUP BY task_id, model
ORDER BY task_id, model NULLS LAST
