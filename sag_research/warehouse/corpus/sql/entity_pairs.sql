-- entity_pairs: entities that are named in the same runs: how many runs, how many of them failed.
-- Entities of more runs than max_runs are left out: they pair with everything.
-- in: runs(run_id, failed), mentions(run_id, entity_id)
-- out: entity_a VARCHAR, entity_b VARCHAR, n BIGINT, n_failed BIGINT
-- with: min_runs BIGINT = 5, max_runs BIGINT = 100
WITH once AS (
    SELECT DISTINCT m.run_id, m.entity_id, r.failed
    FROM mentions m JOIN runs r ON m.run_id = r.run_id
    WHERE r.failed IS NOT NULL
),
kept AS (
    SELECT entity_id FROM once GROUP BY entity_id HAVING count(*) BETWEEN $min_runs AND $max_runs
),
chosen AS (
    SELECT o.run_id, o.entity_id, o.failed FROM once o JOIN kept k ON o.entity_id = k.entity_id
)
SELECT a.entity_id AS entity_a, b.entity_id AS entity_b, count(*) AS n,
       sum(a.failed)::BIGINT AS n_failed
FROM chosen a JOIN chosen b ON a.run_id = b.run_id AND a.entity_id < b.entity_id
GROUP BY a.entity_id, b.entity_id
HAVING count(*) >= $min_runs
ORDER BY a.entity_id, b.entity_id
