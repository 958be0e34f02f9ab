-- The entities that each step of the given runs names; steps are numbered as in from_steps.sql.
WITH wanted AS (
    SELECT unnest($1::VARCHAR[]) AS run_id, generate_subscripts($1::VARCHAR[], 1) AS owner
),
placed AS (
    SELECT s.run_id, s.position, w.owner,
           row_number() OVER (PARTITION BY w.owner ORDER BY s.position) - 1 AS step
    FROM steps s JOIN wanted w USING (run_id) WHERE NOT s.inherited
)
SELECT p.run_id, p.step, m.entity_id, min(m.kind) AS kind,
       max(CASE WHEN m.role = 'MUTATED' THEN 1 ELSE 0 END) AS mutated
FROM mentions m JOIN placed p ON m.run_id = p.run_id AND m.position = p.position
GROUP BY p.owner, p.run_id, p.step, m.entity_id
ORDER BY p.owner, p.step, m.entity_id
