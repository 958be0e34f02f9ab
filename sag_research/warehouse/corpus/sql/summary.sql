-- summary: how large the corpus is, by outcome; the last row is the whole.
-- in: runs(run_id, task_id, model, outcome, n_steps)
-- out: outcome VARCHAR, n_runs BIGINT, n_tasks BIGINT, n_models BIGINT, n_steps BIGINT, shortest BIGINT, longest BIGINT
WITH counted AS (
    SELECT outcome AS one, grouping(outcome) AS is_all, count(*) AS n_runs,
           count(DISTINCT task_id) AS n_tasks, count(DISTINCT model) AS n_models,
           sum(n_steps)::BIGINT AS n_steps, min(n_steps) AS shortest, max(n_steps) AS longest
    FROM runs
    GROUP BY GROUPING SETS ((outcome), ())
)
SELECT CASE WHEN is_all = 1 THEN 'all' ELSE one END AS outcome, n_runs, n_tasks, n_models,
       n_steps, shortest, longest
FROM counted
ORDER BY is_all, one
