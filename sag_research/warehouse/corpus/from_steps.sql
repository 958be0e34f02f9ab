-- The own steps of the given runs, numbered without gaps, with the texts that tokens are made of.
WITH wanted AS (
    SELECT unnest($1::VARCHAR[]) AS run_id, generate_subscripts($1::VARCHAR[], 1) AS owner
)
SELECT s.run_id, row_number() OVER (PARTITION BY w.owner ORDER BY s.position) - 1 AS step,
       s.thought, s.action, s.observation, s.n_calls, s.tool, s.exit_code, s.flags
FROM steps s JOIN wanted w USING (run_id)
WHERE NOT s.inherited
ORDER BY w.owner, s.position
