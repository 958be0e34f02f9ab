-- entities: in how many runs of known outcome each entity is named, and how many of those failed.
-- in: runs(run_id, task_id, failed), mentions(run_id, step, entity_id, kind, mutated)
-- out: entity_id VARCHAR, kind VARCHAR, n BIGINT, n_failed BIGINT, n_tasks BIGINT, n_mutated BIGINT
-- with: min_runs BIGINT = 5
WITH once AS (
    SELECT run_id, entity_id, min(kind) AS kind, max(mutated) AS mutated
    FROM mentions
    GROUP BY run_id, entity_id
)
SELECT o.entity_id, min(o.kind) AS kind, count(*) AS n, sum(r.failed)::BIGINT AS n_failed,
       count(DISTINCT r.task_id) AS n_tasks, sum(o.mutated)::BIGINT AS n_mutated
FROM once o JOIN runs r ON o.run_id = r.run_id
WHERE r.failed IS NOT NULL
GROUP BY o.entity_id
HAVING count(*) >= $min_runs
ORDER BY o.entity_id
