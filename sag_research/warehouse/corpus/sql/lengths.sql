-- lengths: how many runs of each model and outcome took how many steps, in bins.
-- in: runs(run_id, model, outcome, n_steps)
-- out: model VARCHAR, outcome VARCHAR, from_steps BIGINT, n_runs BIGINT
-- with: width BIGINT = 10
SELECT model, outcome, n_steps - n_steps % $width AS from_steps, count(*) AS n_runs
FROM runs
GROUP BY model, outcome, n_steps - n_steps % $width
ORDER BY model NULLS LAST, outcome, from_steps
