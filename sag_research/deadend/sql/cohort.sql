-- The runs of a cohort in the order of the log, and why a run does not count.
WITH known AS (
    SELECT run_id, min(known_at_step) AS known_at_step FROM outcomes GROUP BY run_id
)
SELECT r.run_id, r.task_id, r.attempt, r.dataset, r.repo, r.agent, r.model, r.source_id,
       r.exit_status, r.outcome, r.detail, k.known_at_step, r.started_at, r.n_steps, r.tokens_in,
       r.tokens_out, r.cost_usd,
       CASE WHEN r.parent_id IS NOT NULL THEN 'fork'
            WHEN r.kind = 'extraction' THEN 'extraction'
            WHEN r.copy_of IS NOT NULL THEN 'copy'
            WHEN r.hidden THEN 'hidden'
            WHEN r.n_steps = 0 THEN 'no steps' END AS left_out
FROM (SELECT * FROM runs WHERE ({where})) r LEFT JOIN known k USING (run_id)
ORDER BY r.seq
