-- The own steps of the given runs, run after run; owner is the run's index in the list.
WITH wanted AS (
    SELECT unnest($1::VARCHAR[]) AS run_id, generate_subscripts($1::VARCHAR[], 1) - 1 AS owner
)
SELECT w.owner, s.step, s.thought, s.action, s.observation, s.n_calls, s.tool, s.exit_code,
       s.seconds, s.tokens_in, s.tokens_out, s.cost_usd, s.flags
FROM steps s JOIN wanted w USING (run_id)
WHERE NOT s.inherited
ORDER BY w.owner, s.position
