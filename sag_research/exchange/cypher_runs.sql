-- The wanted runs and the ancestors whose events they took over.
WITH RECURSIVE wanted(run_id) AS (
    SELECT run_id FROM runs WHERE ({where}) AND run_id <> '@workspace'
    UNION
    SELECT r.parent_id FROM wanted w JOIN runs r USING (run_id) WHERE r.parent_id IS NOT NULL
)
SELECT r.run_id, r.task_id, r.kind, r.agent, r.model, r.dataset, r.repo, r.outcome,
       r.exit_status, r.n_steps, r.parent_id, r.fork_position, r.goal
FROM runs r JOIN wanted USING (run_id) ORDER BY r.run_id
