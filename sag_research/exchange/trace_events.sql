SELECT run_id, step, thought, action, observation, n_calls, flags, tool, exit_code, seconds,
       tokens_in, tokens_out, cost_usd, started_at
FROM steps WHERE run_id IN (SELECT unnest(?)) AND NOT inherited
ORDER BY run_id, position
