-- What is known of a portion of the runs; $counted stands beside $runs.
WITH wanted AS (
    SELECT unnest($runs::VARCHAR[]) AS run_id, unnest($counted::BOOLEAN[]) AS counted
),
known AS (
    SELECT run_id, min(known_at_step) AS known_at_step FROM outcomes GROUP BY run_id
)
SELECT r.run_id, r.seq, r.kind, r.task_id, r.attempt, r.dataset, r.repo, r.agent, r.model, r.label,
       r.exit_status, r.outcome, r.detail, r.score, k.known_at_step, r.n_steps, r.tokens_in,
       r.tokens_out, r.cost_usd, r.started_at, r.ended_at, r.parent_id, r.fork_position, r.digest,
       r.goal, r.hidden, w.counted
FROM wanted w JOIN runs r USING (run_id) LEFT JOIN known k USING (run_id)
ORDER BY r.run_id
