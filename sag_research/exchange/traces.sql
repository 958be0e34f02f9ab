-- One row a case; forks, extractions, copies and hidden runs are no observations of their own.
WITH known AS (
    SELECT run_id, min(known_at_step) AS known_at_step FROM outcomes GROUP BY run_id
)
SELECT r.run_id, r.task_id, r.outcome, r.detail, k.known_at_step, r.exit_status, r.dataset, r.repo,
       r.agent, r.model, r.attempt, r.n_steps, r.tokens_in, r.tokens_out, r.cost_usd
FROM (SELECT * FROM runs WHERE ({where})) r LEFT JOIN known k USING (run_id)
WHERE r.parent_id IS NULL AND r.kind <> 'extraction' AND r.copy_of IS NULL AND NOT r.hidden
ORDER BY r.run_id
