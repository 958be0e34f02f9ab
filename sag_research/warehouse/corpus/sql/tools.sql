-- tools: how often each tool was the last of a step's, in how many runs, and how often it said an
-- exit code that is not 0, of those where one is known.
-- in: steps(run_id, step, tool, exit_code)
-- out: tool VARCHAR, n_steps BIGINT, n_runs BIGINT, n_coded BIGINT, n_not_zero BIGINT
SELECT tool, count(*) AS n_steps, count(DISTINCT run_id) AS n_runs,
       count(exit_code) AS n_coded, count(*) FILTER (WHERE exit_code <> 0) AS n_not_zero
FROM steps
GROUP BY tool
ORDER BY tool NULLS LAST
