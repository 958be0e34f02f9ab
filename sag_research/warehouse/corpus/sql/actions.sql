-- actions: what was done, by model: steps of each verb, and in how many runs.
-- in: runs(run_id, model), steps(run_id, step, token), tokens(token, verb)
-- out: model VARCHAR, verb VARCHAR, n_steps BIGINT, n_runs BIGINT
SELECT r.model, t.verb, count(*) AS n_steps, count(DISTINCT s.run_id) AS n_runs
FROM steps s JOIN runs r ON s.run_id = r.run_id JOIN tokens t ON s.token = t.token
GROUP BY r.model, t.verb
ORDER BY r.model NULLS LAST, t.verb
